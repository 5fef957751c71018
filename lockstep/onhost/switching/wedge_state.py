"""The wedge watch's memory between two checks, and its actions, for `switch.sh status`.

In /run, with times since boot: a reboot forgets it, and a jump of the clock changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from lockstep.onhost.core import atomic, layout


@dataclass
class Deed:
    """One restart or final stop: unit, seconds since boot, Unix time, reason."""

    unit: str
    at: float
    when: float
    reason: str
    left_down: bool = False


@dataclass
class WedgeRecord:
    """The process last looked at, its counters, its last sign of life, and the actions.

    `asked_at` is the time of the watch's last request for a token, seconds since boot.
    """

    pid: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    alive_at: float = 0.0
    asked_at: float = 0.0
    deeds: list[Deed] = field(default_factory=list)


def load(paths: layout.Paths) -> WedgeRecord:
    """Return the record, empty if it is missing or unreadable."""
    try:
        data = json.loads(paths.wedge_record.read_text(encoding="utf-8"))
        deeds = [Deed(**deed) for deed in data.pop("deeds")]
        return WedgeRecord(**data, deeds=deeds)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return WedgeRecord()


def save(paths: layout.Paths, record: WedgeRecord) -> None:
    """Replace the record in one step; everybody may read it."""
    atomic.write_json(paths.wedge_record, asdict(record))


def last_deed(record: WedgeRecord, unit: str) -> Deed | None:
    """Return the last action on a unit."""
    return next((deed for deed in reversed(record.deeds) if deed.unit == unit), None)
