"""Which target is hot, and how many requests it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lockstep.onhost.core import config, errors, layout, output
from lockstep.onhost.systemd import units

EVERY_S = 1.0  #: systemd is asked at most this often, seconds.


class Hot:
    """What systemd says about the units of all targets, and who uses them.

    systemd's word costs 10 ms and is up to a second old. So a target counts as hot only while the
    control group that its unit had then has processes: a unit that has ended since, or was started
    anew, has none or another one.
    """

    def __init__(self, host: config.Host, paths: layout.Paths | None = None) -> None:
        self._host = host
        self._groups = (paths or layout.Paths()).groups_of_units
        self._units: dict[str, units.Unit] = {}
        self._marks: dict[str, int] = {}
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._running: Counter[str] = Counter()
        self._rested: dict[str, float] = {}

    def now(self) -> str | None:
        """The hot target, by what is known now; None: no target is."""
        return next((name for name in self._host.targets if self._is_hot(name)), None)

    def serves(self, target: str) -> config.Target | None:
        """What answers for a target by what is known now: itself, its fallback, or nothing."""
        asked = self._host.targets[target]
        names = (target, asked.fallback) if asked.fallback else (target,)
        return next((self._host.targets[name] for name in names if self._is_hot(name)), None)

    def state(self, target: str) -> str:
        """In the operator's words, by what is known now: hot, loading, stopping, failed or off."""
        unit = self._units.get(self._host.targets[target].unit)
        if unit is None:
            return "off"
        return unit.state if unit.state != "hot" or self._is_hot(target) else "stopping"

    def changed_at(self, target: str) -> float:
        """When systemd last changed its unit's state, in seconds of `time.monotonic`."""
        unit = self._units.get(self._host.targets[target].unit)
        return unit.changed if unit else 0.0

    @property
    def known(self) -> bool:
        """Whether systemd has answered."""
        return bool(self._units)

    def changed(self) -> None:
        """Something was switched: what is known may be wrong."""
        self._asked = float("-inf")

    async def look(self) -> None:
        """Know what is hot, by an answer of systemd that is at most a second old."""
        if time.monotonic() - self._asked >= EVERY_S:
            await asyncio.shield(self._ask())

    async def serving(self, target: str) -> config.Target | None:
        """`serves`, without waiting for systemd where the last answer still holds."""
        found = self.serves(target)
        if found is None:
            await self.look()
            return self.serves(target)
        if time.monotonic() - self._asked >= EVERY_S:
            self._ask()
        return found

    def running(self, name: str) -> int:
        """Requests under way at a target."""
        return self._running[name]

    def idle_s(self, name: str) -> float | None:
        """Seconds since a target's last request ended; None: it has had none, or has one now."""
        if self._running[name] or name not in self._rested:
            return None
        return time.monotonic() - self._rested[name]

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[None]:
        """A request is under way at a target until the block ends."""
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            self._rested[name] = time.monotonic()

    def _is_hot(self, name: str) -> bool:
        unit = self._host.targets[name].unit
        known = self._marks.get(unit)
        return known is not None and known == mark(self._groups / unit)

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asked = time.monotonic()
            self._asking = asyncio.create_task(self._answer())
        return self._asking

    async def _answer(self) -> None:
        names = [target.unit for target in self._host.targets.values()]
        # Before the question: a control group that is newer than the answer does not count.
        marks = {name: mark(self._groups / name) for name in names}
        try:
            self._units = await asyncio.to_thread(units.show, names)
        except errors.Problem as problem:
            output.say(f"lockstep gateway: {problem}")
            self._units = {}
        self._marks = {
            name: found
            for name in names
            if (unit := self._units.get(name)) and unit.state == "hot"
            if (found := marks[name]) is not None
        }


def mark(group: Path) -> int | None:
    """What tells a unit's control group with processes from others; None: no process is in it."""
    try:
        # Several times a request: an opened text file would cost twice as much.
        file = os.open(group / "cgroup.events", os.O_RDONLY)
        try:
            events = os.read(file, 4096)
        finally:
            os.close(file)
        return group.stat().st_ino if b"populated 1" in events else None
    except OSError:
        return None
