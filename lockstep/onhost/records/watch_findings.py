"""Findings and deeds of the watches since boot: small files in one folder of /run.

`wedge.json` is the wedge watch's, `gpu.json` that of its look at the GPU, `sense-MODEL.json` the
last look at a model's sense, `ended-UNIT.json` an engine that the memory watch ended. A reboot
forgets them all. Each is replaced whole by one watch, so none waits for another.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.onhost.core import layout, terminal_lines
from lockstep.onhost.records import json_records


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
    """The process last looked at, its counters, and the actions.

    `asked_at` is the time of the watch's last request for a token. Times are seconds since boot, so
    that a jump of the clock changes nothing.
    """

    pid: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    asked_at: float = 0.0
    deeds: list[Deed] = field(default_factory=list)

    def last_deed(self, unit: str) -> Deed | None:
        """Return the last action on a unit."""
        return next((deed for deed in reversed(self.deeds) if deed.unit == unit), None)


@dataclass
class GpuRecord:
    """Findings on the GPU in this boot.

    Attributes:
        findings: Code → the fault, with the remedy.
        slow: Looks in a row at which the model was too slow.
        last_boot: How the boot before this one was cut off under a model; None if it was not, or
            somebody has switched since.
    """

    findings: dict[str, str] = field(default_factory=dict)
    slow: int = 0
    last_boot: str | None = None

    @property
    def lines(self) -> list[str]:
        """The findings, each with its code."""
        return [f"{code}: {finding}" for code, finding in sorted(self.findings.items())]


@dataclass(frozen=True)
class SenseLook:
    """The last look at a model: the main process asked, the verdict, and the Unix time.

    `state` is one of `engine.sense_check.State`.
    """

    model: str
    pid: int
    state: str
    words: str
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class MemoryKill:
    """One engine that the memory watch ended; sizes in GiB, and Unix time.

    It stays until the model is hot again. Nothing automatic starts a model that has one.
    """

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
        return f"{self.reason}; {terminal_lines.moment_with_age(self.when)}"


@dataclass(frozen=True)
class Findings:
    """Findings of all watches: looks at the sense by model, memory kills by unit."""

    wedge: WedgeRecord
    gpu: GpuRecord
    senses: dict[str, SenseLook]
    kills: dict[str, MemoryKill]


def load(paths: layout.Paths) -> Findings:
    """Return the findings since boot; what is missing or unreadable is empty."""
    folder = paths.findings
    looks = (json_records.load(SenseLook, path) for path in sorted(folder.glob("sense-*")))
    kills = (json_records.load(MemoryKill, path) for path in sorted(folder.glob("ended-*")))
    return Findings(
        json_records.load(WedgeRecord, folder / "wedge.json") or WedgeRecord(),
        json_records.load(GpuRecord, folder / "gpu.json") or GpuRecord(),
        {look.model: look for look in looks if look},
        {kill.unit: kill for kill in kills if kill},
    )


def save(paths: layout.Paths, finding: WedgeRecord | GpuRecord | SenseLook | MemoryKill) -> None:
    """Replace one finding in one step; everybody may read it. Raise OSError on failure."""
    match finding:
        case WedgeRecord():
            path = paths.findings / "wedge.json"
        case GpuRecord():
            path = paths.findings / "gpu.json"
        case SenseLook():
            path = _sense_path(paths, finding.model)
        case MemoryKill():
            path = _kill_path(paths, finding.unit)
    json_records.save(path, finding)


def remove_sense_look(paths: layout.Paths, model: str) -> None:
    """Forget the last look at a model, because it was cut short."""
    _sense_path(paths, model).unlink(missing_ok=True)


def remove_kill(paths: layout.Paths, unit: str) -> None:
    """Remove the kill of a unit, because its model is hot again; raise OSError on failure."""
    _kill_path(paths, unit).unlink(missing_ok=True)


def _sense_path(paths: layout.Paths, model: str) -> Path:
    return paths.findings / f"sense-{model}.json"


def _kill_path(paths: layout.Paths, unit: str) -> Path:
    return paths.findings / f"ended-{unit}.json"
