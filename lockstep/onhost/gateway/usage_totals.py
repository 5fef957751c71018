"""Totals of each person's requests, kept over restarts of the gateway."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors
from lockstep.onhost.gateway import keys
from lockstep.onhost.records import json_records

#: In the StateDirectory= of the gateway's unit.
PATH = Path("/var/lib/lockstep-gateway/usage.json")
EVERY_S = 30.0  #: Seconds between two writes of the file.
_MOST_BYTES = 4 << 20  # Far more than a file of a thousand persons has.


@dataclass
class Total:
    """Totals of one person since the first request; `last` is the time of the newest, UTC."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refusals: int = 0
    last: str | None = None


def read_totals_by_person(path: Path = PATH) -> dict[str, Total]:
    """Read totals by person. Raise Problem if the file is unreadable or not one of ours."""
    try:
        # The gateway owns the file and root reads it: follow no link, and never block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, encoding="utf-8") as file:
            return json_records.record_of_text(dict[str, Total], file.read(_MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {errors.why(error)}") from error


class Usage:
    """Totals of all persons, written to usage.json while `write_periodically` runs.

    An unreadable file is reported once, and begun anew.
    """

    def __init__(self, path: Path = PATH, now: keys.Now = keys.utc_now) -> None:
        self._path = path
        self._now = now
        self._has_changed = False
        self._writing = threading.Lock()
        try:
            self.totals = read_totals_by_person(path)
        except errors.Problem as problem:
            keys.write_to_stderr(f"{problem}. Counting begins anew")
            self.totals = {}
            # Others read the file before the first request.
            self._has_changed = True

    def add_usage(
        self,
        person: str,
        *,
        requests: int = 0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        refusals: int = 0,
    ) -> None:
        """Add to one person's totals in memory; nothing is written."""
        total = self.totals.setdefault(person, Total())
        total.requests += requests
        total.prompt_tokens += prompt_tokens
        total.completion_tokens += completion_tokens
        total.refusals += refusals
        total.last = keys.format_utc(self._now())
        self._has_changed = True

    def write_changed_totals(self) -> None:
        """Write what changed since the last time, and report an error of the disk."""
        with self._writing:
            if not self._has_changed:
                return
            self._has_changed = False
            totals = {name: asdict(total) for name, total in sorted(self.totals.items())}
            try:
                atomic_files.write_json(self._path, totals, mode=0o600)
            except OSError as error:
                self._has_changed = True
                keys.write_to_stderr(f"{self._path}: {errors.why(error)}")

    async def write_periodically(self, every_s: float = EVERY_S) -> None:
        """Write periodically until cancelled, and a last time then."""
        # Only the gateway runs this, so `gateway-keys list` need not wait for the import.
        import asyncio

        try:
            while True:
                await asyncio.sleep(every_s)
                await asyncio.to_thread(self.write_changed_totals)
        finally:
            self.write_changed_totals()
