"""Idle stop: stops a model after `gateway.ttl_s` seconds without requests, by a normal switch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lockstep.onhost.core import config, event_lines, layout
from lockstep.onhost.engine import openai_api
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.switch_queue import SwitchQueue
from lockstep.onhost.records import watch_findings

_LONGEST_S = 5.0
_COUNTERS_S = 3.0


@dataclass(frozen=True)
class IdleState:
    """One observation of the host; times are in seconds of the monotonic clock."""

    hot: str | None  #: The hot model; None if there is none, or its requests are not seen here.
    since: float = 0.0  #: Time at which it became hot.
    #: Time at which its last request through the gateway ended; None if one runs or none came.
    last_asked: float | None = None
    running: int = 0  #: Running requests through the gateway.
    outstanding: int | None = 0  #: Requests in the engine; None if it does not answer.
    #: Counters that grow with the engine's work, by name.
    counters: Mapping[str, float] = field(default_factory=dict)
    #: Whether the wedge watch may have asked the engine since the last look.
    is_watched: bool = False


class IdleTime:
    """Idle time of the hot model, from successive observations."""

    def __init__(self) -> None:
        self._last = IdleState(None)
        self._busy = 0.0

    def idle_seconds(self, look: IdleState, now: float) -> float:
        """Return seconds since its last request, or since it became hot, as far as observed."""
        fresh = (look.hot, look.since) != (self._last.hot, self._last.since)
        # Every minute the watch asks an idle engine for a token.
        engine = look.outstanding != 0 or look.counters != self._last.counters
        if fresh or look.running or (engine and not look.is_watched):
            self._busy = now
        elif look.last_asked is not None:
            self._busy = max(self._busy, look.last_asked)
        self._last = look
        return now - self._busy if look.hot else 0.0


@dataclass
class IdleStop:
    """Periodic check that stops a model once it was idle for `ttl_s` seconds.

    `swaps` does the stop, unless a request arrives.
    """

    hot: HotModel
    host: config.HostConfig
    swaps: SwitchQueue
    ttl_s: float
    paths: layout.Paths = field(default_factory=layout.Paths)
    now: Callable[[], float] = time.monotonic
    _idle: IdleTime = field(default_factory=IdleTime, init=False)

    @property
    def _check_period_s(self) -> float:
        return min(_LONGEST_S, self.ttl_s / 10)

    async def check_until_cancelled(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(self._check_period_s)
            await self.stop_idle_model()

    async def stop_idle_model(self) -> None:
        """Check once, and stop an idle model."""
        look = await self._observe_host()
        if self._idle.idle_seconds(look, self.now()) < self.ttl_s:
            return
        if fault := await self.swaps.stop_unused_model():
            rest_text = f"{look.hot} had no request for {self.ttl_s:.0f} s"
            event_lines.say(f"lockstep gateway: {rest_text}: {fault}")
            self._idle = IdleTime()

    async def _observe_host(self) -> IdleState:
        await self.hot.refresh_unit_states()
        name = self.hot.hot_name()
        if name is None or not self.host.models[name].engine_url:
            return IdleState(None)
        outstanding: int | None = None
        counters: Mapping[str, float] = {}
        with suppress(openai_api.NotReady):
            engine = self.host.models[name].at_engine_address
            counters_now = await asyncio.to_thread(openai_api.counters, engine, None, _COUNTERS_S)
            outstanding = counters_now.outstanding if counters_now else 0
            counters = counters_now.moving if counters_now else {}
        idle = self.hot.idle_s(name)
        # The watch notes the time before it asks, and a token may take a moment.
        last_asked = watch_findings.load(self.paths).wedge.asked_at
        return IdleState(
            hot=name,
            since=self.hot.state_change_time(name),
            last_asked=None if idle is None else self.now() - idle,
            running=self.hot.running_requests(name),
            outstanding=outstanding,
            counters=counters,
            is_watched=self.now() - last_asked <= 2 * self._check_period_s + 1,
        )
