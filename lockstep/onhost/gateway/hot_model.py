"""The hot model, and the number of requests that it answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lockstep.onhost.core import config, errors, event_lines, layout
from lockstep.onhost.systemd import units

EVERY_S = 1.0  #: Minimum seconds between two queries of systemd.


class HotModel:
    """State of all models' units by systemd, and their running requests.

    A query costs 10 ms and its result is up to a second old. So a model counts as hot only while
    the control group that its unit had then has processes: a unit that has ended or was started
    anew since has none, or another one.
    """

    def __init__(self, host: config.HostConfig, paths: layout.Paths | None = None) -> None:
        self._host = host
        self._groups = (paths or layout.Paths()).groups_of_units
        self._units: dict[str, units.Unit] = {}
        self._marks: dict[str, int] = {}
        self._ask_time = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._running: Counter[str] = Counter()
        self._rest_times: dict[str, float] = {}

    def hot_name(self) -> str | None:
        """Return the hot model as last known, or None."""
        return next((name for name in self._host.models if self._is_hot(name)), None)

    def serving_variant(self, model: str) -> config.Model | None:
        """Return what last answered for a model: itself, its fallback, or None."""
        wanted_model = self._host.models[model]
        names = (model, wanted_model.fallback) if wanted_model.fallback else (model,)
        return next((self._host.models[name] for name in names if self._is_hot(name)), None)

    def state_of(self, model: str) -> str:
        """Return a model's last known state: hot, loading, stopping, failed or off."""
        unit = self._units.get(self._host.models[model].unit)
        if unit is None:
            return "off"
        return unit.state if unit.state != "hot" or self._is_hot(model) else "stopping"

    def state_change_time(self, model: str) -> float:
        """Return when systemd last changed its unit's state, in seconds of `time.monotonic`."""
        unit = self._units.get(self._host.models[model].unit)
        return unit.change_time if unit else 0.0

    @property
    def has_systemd_answered(self) -> bool:
        """True once systemd has answered."""
        return bool(self._units)

    def discard_known_state(self) -> None:
        """Discard the last known state, because a switch may have changed it."""
        self._ask_time = float("-inf")

    async def refresh_unit_states(self) -> None:
        """Query systemd unless its last answer is at most a second old."""
        if time.monotonic() - self._ask_time >= EVERY_S:
            await asyncio.shield(self._start_systemd_query())

    async def query_serving_variant(self, model: str) -> config.Model | None:
        """Return `serving_variant`, without waiting for systemd while its last answer holds."""
        hot_model = self.serving_variant(model)
        if hot_model is None:
            await self.refresh_unit_states()
            return self.serving_variant(model)
        if time.monotonic() - self._ask_time >= EVERY_S:
            self._start_systemd_query()
        return hot_model

    def running_requests(self, name: str) -> int:
        """Return the number of running requests of a model."""
        return self._running[name]

    def idle_s(self, name: str) -> float | None:
        """Return seconds since a model's last request ended; None if it had none or has one."""
        if self._running[name] or name not in self._rest_times:
            return None
        return time.monotonic() - self._rest_times[name]

    @contextlib.contextmanager
    def count_running_request(self, name: str) -> Iterator[None]:
        """Count a request as running at a model until the block ends."""
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1
            self._rest_times[name] = time.monotonic()

    def _is_hot(self, name: str) -> bool:
        unit = self._host.models[name].unit
        known_mark = self._marks.get(unit)
        return known_mark is not None and known_mark == control_group_identity(self._groups / unit)

    def _start_systemd_query(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._ask_time = time.monotonic()
            self._asking = asyncio.create_task(self._query_systemd())
        return self._asking

    async def _query_systemd(self) -> None:
        names = [model.unit for model in self._host.models.values()]
        # Read before the query, so that a newer control group does not count.
        marks = {name: control_group_identity(self._groups / name) for name in names}
        try:
            self._units = await asyncio.to_thread(units.units_by_name, names)
        except errors.Problem as problem:
            event_lines.say(f"lockstep gateway: {problem}")
            self._units = {}
        self._marks = {
            name: port
            for name in names
            if (unit := self._units.get(name)) and unit.state == "hot"
            if (port := marks[name]) is not None
        }


def control_group_identity(group: Path) -> int | None:
    """Return an identity of a unit's control group with processes; None if it has no process."""
    try:
        # This runs several times a request, and an opened text file would cost twice as much.
        file = os.open(group / "cgroup.events", os.O_RDONLY)
        try:
            events = os.read(file, 4096)
        finally:
            os.close(file)
        return group.stat().st_ino if b"populated 1" in events else None
    except OSError:
        return None
