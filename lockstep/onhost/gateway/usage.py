"""What each person has asked for, in all: kept over restarts of the gateway."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic, errors, schema
from lockstep.onhost.gateway import keys

#: In the StateDirectory= of the gateway's unit.
PATH = Path("/var/lib/lockstep-gateway/usage.json")
EVERY_S = 30.0  #: Seconds between two writes of the file.
_MOST_BYTES = 4 << 20  # Far more than a file of a thousand persons has.


@dataclass
class Total:
    """One person's requests since the first one; `last` is the time of the newest, UTC."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refused: int = 0
    last: str | None = None


def read(path: Path = PATH) -> dict[str, Total]:
    """Person → total. Problem where the file cannot be read, or is not one of ours."""
    try:
        # The file is the gateway's, and root reads it too: no link, and nothing that waits.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, encoding="utf-8") as file:
            document = json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {errors.why(error)}") from error
    found: dict[str, Total] = schema.convert(
        dict[str, Total], document, where=str(path), key="", error=_unusable
    )
    return found


def _unusable(what: str, *, where: str, **_: Any) -> errors.Problem:
    return errors.Problem(f"{where}: {what}")


class Usage:
    """Counts of all persons, written to usage.json while `keep` runs.

    A file that cannot be read is told once, and begun anew.
    """

    def __init__(self, path: Path = PATH, now: keys.Now = keys.utc) -> None:
        self._path = path
        self._now = now
        self._changed = False
        self._writing = threading.Lock()
        try:
            self.totals = read(path)
        except errors.Problem as problem:
            keys.tell(f"{problem}. Counting begins anew")
            self.totals = {}

    def add(
        self,
        person: str,
        *,
        requests: int = 0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        refused: int = 0,
    ) -> None:
        """Count for one person; cheap, and writes nothing."""
        total = self.totals.setdefault(person, Total())
        total.requests += requests
        total.prompt_tokens += prompt_tokens
        total.completion_tokens += completion_tokens
        total.refused += refused
        total.last = keys.stamp(self._now())
        self._changed = True

    def write(self) -> None:
        """Write what has changed since the last time. What the disk says against it is told."""
        with self._writing:
            if not self._changed:
                return
            self._changed = False
            totals = {name: asdict(total) for name, total in sorted(self.totals.items())}
            try:
                atomic.write_json(self._path, totals, mode=0o600)
            except OSError as error:
                self._changed = True
                keys.tell(f"{self._path}: {errors.why(error)}")

    async def keep(self, every_s: float = EVERY_S) -> None:
        """Write again and again until it is cancelled, and a last time then."""
        # Only the gateway itself runs this; who lists keys does not wait for the import.
        import asyncio

        try:
            while True:
                await asyncio.sleep(every_s)
                await asyncio.to_thread(self.write)
        finally:
            self.write()
