"""Faults that a test plants into a running web server of the lab."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True)
class Fault:
    """A fault for requests whose path matches.

    ``match`` is a regular expression searched in the path. ``status`` answers with that HTTP
    status instead; ``drop_after`` closes the connection after so many bytes of the body;
    ``corrupt`` flips bits of the body's first byte; ``rate`` is a limit in bytes per second;
    ``delay`` waits so many seconds before the answer. ``times`` is for how many requests.
    """

    match: str
    status: int | None = None
    drop_after: int | None = None
    corrupt: bool = False
    rate: float | None = None
    delay: float = 0.0
    times: int | None = None


def parse_faults(body: bytes) -> list[Fault]:
    """Read a JSON list of faults; ``ValueError`` names the key that is not known."""
    known_keys = {field.name for field in fields(Fault)}
    faults = []
    for entry in json.loads(body):
        unknown = sorted(set(entry) - known_keys)
        if unknown or "match" not in entry:
            raise ValueError(
                f"a fault needs 'match' and may have {', '.join(sorted(known_keys))}; found "
                f"{', '.join(unknown) or 'no match'}"
            )
        re.compile(entry["match"])
        faults.append(Fault(**entry))
    return faults


class Faults:
    """The faults planted at present; safe to share among threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int | None]] = []

    def replace(self, faults: list[Fault]) -> None:
        with self._lock:
            self._faults = [(fault, fault.times) for fault in faults]

    def describe(self) -> list[dict[str, object]]:
        with self._lock:
            return [
                asdict(fault) | {"times": remaining_times}
                for fault, remaining_times in self._faults
            ]

    def take(self, path: str) -> Fault | None:
        """The first fault for this path; one of its `times` is counted as used."""
        with self._lock:
            for position, (fault, remaining_times) in enumerate(self._faults):
                if remaining_times != 0 and re.search(fault.match, path):
                    self._faults[position] = (
                        fault,
                        None if remaining_times is None else remaining_times - 1,
                    )
                    return fault
        return None
