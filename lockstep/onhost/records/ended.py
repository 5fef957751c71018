"""Engines that the memory floor has ended in this boot: one small file for each unit.

The floor writes one, and `ready` removes it when the target is hot again. Nothing automatic starts
a target that has one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lockstep.onhost.core import atomic, layout, terminal

#: Begins every reason, also where it is carried to another member of a cluster.
MARK = "the memory floor ended it"


@dataclass(frozen=True)
class Ended:
    """One engine that was ended; GiB, and Unix time."""

    target: str
    unit: str
    phase: str
    floor_gib: float
    available_gib: float
    when: float = field(default_factory=time.time)

    @property
    def reason(self) -> str:
        """Why, with the numbers."""
        return (
            f"{MARK} while {self.phase}: {self.available_gib:.1f} GiB available, "
            f"{self.floor_gib:.1f} is the least"
        )

    def __str__(self) -> str:
        return f"{self.reason}; {terminal.since(self.when)}"


def note(paths: layout.Paths, ended: Ended) -> None:
    """Keep it; everybody may read it. OSError where that fails."""
    atomic.write_json(_file(paths, ended.unit), asdict(ended))


def forget(paths: layout.Paths, unit: str) -> None:
    """The unit's target is hot again. OSError where that fails."""
    _file(paths, unit).unlink(missing_ok=True)


def of(paths: layout.Paths, unit: str) -> Ended | None:
    """How the floor ended this unit; None where it did not."""
    return _read(_file(paths, unit))


def every(paths: layout.Paths) -> list[Ended]:
    """All of this boot."""
    found = map(_read, sorted(paths.ended.glob("*.json")))
    return [each for each in found if each is not None]


def _file(paths: layout.Paths, unit: str) -> Path:
    return paths.ended / f"{unit}.json"


def _read(path: Path) -> Ended | None:
    try:
        return Ended(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
