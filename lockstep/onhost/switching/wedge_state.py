"""The wedge watch's memory between two checks, and its actions, for `switch.sh status`.

In /run, with times since boot: a reboot forgets it, and a jump of the clock changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from lockstep.onhost.core import atomic, layout


@dataclass
class Deed:
    """One restart, or leaving down: unit, seconds since boot, Unix time, why."""

    unit: str
    at: float
    when: float
    reason: str
    left_down: bool = False


@dataclass
class Record:
    """The process last looked at, its counters, when it last showed life, and what was done.

    `asked_at`: when the watch last asked for a token, seconds since boot.
    """

    pid: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    alive_at: float = 0.0
    asked_at: float = 0.0
    deeds: list[Deed] = field(default_factory=list)


def load(paths: layout.Paths) -> Record:
    """The record; an empty one when there is none or it cannot be read."""
    try:
        data = json.loads(paths.wedge_record.read_text(encoding="utf-8"))
        deeds = [Deed(**deed) for deed in data.pop("deeds")]
        return Record(**data, deeds=deeds)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return Record()


def save(paths: layout.Paths, record: Record) -> None:
    """Replace the record in one step; everybody may read it."""
    atomic.write_json(paths.wedge_record, asdict(record))


def last_deed(record: Record, unit: str) -> Deed | None:
    """What was last done to a unit."""
    return next((deed for deed in reversed(record.deeds) if deed.unit == unit), None)
