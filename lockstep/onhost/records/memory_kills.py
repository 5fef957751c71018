"""Engines that the memory watch has ended in this boot: one small file for each unit.

The memory watch writes one, and `ready` removes it when the model is hot again. Nothing automatic
starts a model that has one.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lockstep.onhost.core import atomic, layout, terminal


@dataclass(frozen=True)
class MemoryKill:
    """One engine that was ended; sizes in GiB, and Unix time."""

    model: str
    unit: str
    phase: str
    minimum_gib: float
    available_gib: float
    when: float = field(default_factory=time.time)

    @property
    def reason(self) -> str:
        """The reason, with the numbers."""
        return (
            f"the memory watch ended it while {self.phase}: {self.available_gib:.1f} GiB "
            f"available, below the minimum of {self.minimum_gib:.1f} GiB"
        )

    def __str__(self) -> str:
        return f"{self.reason}; {terminal.since(self.when)}"


def record_kill(paths: layout.Paths, kill: MemoryKill) -> None:
    """Store the record, readable for everybody; raise OSError on failure."""
    atomic.write_json(_kill_path(paths, kill.unit), asdict(kill))


def remove_kill(paths: layout.Paths, unit: str) -> None:
    """Remove the record, because the unit's model is hot again; raise OSError on failure."""
    _kill_path(paths, unit).unlink(missing_ok=True)


def kill_of_unit(paths: layout.Paths, unit: str) -> MemoryKill | None:
    """Return how the memory watch ended this unit, or None."""
    return _read_kill(_kill_path(paths, unit))


def all_kills(paths: layout.Paths) -> list[MemoryKill]:
    """Return all records of this boot."""
    kills = map(_read_kill, sorted(paths.memory_kills.glob("*.json")))
    return [kill for kill in kills if kill is not None]


def _kill_path(paths: layout.Paths, unit: str) -> Path:
    return paths.memory_kills / f"{unit}.json"


def _read_kill(path: Path) -> MemoryKill | None:
    try:
        return MemoryKill(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
