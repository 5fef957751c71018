"""Lets a model go that nobody has asked for some time (`gateway.ttl_s`), by an ordinary switch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lockstep.onhost.core import config, layout, output
from lockstep.onhost.engine import openai_api
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.swap import Swaps
from lockstep.onhost.switching import wedge_state

_LONGEST_S = 5.0
_COUNTERS_S = 3.0


@dataclass(frozen=True)
class Look:
    """One look at the host; times are in seconds of the monotonic clock."""

    hot: str | None  #: The hot target; None: none is, or its requests are not seen here.
    since: float = 0.0  #: When it became hot.
    #: When its last request by the gateway ended; None: one runs, or there was none.
    asked: float | None = None
    running: int = 0  #: Requests at it by the gateway.
    outstanding: int | None = 0  #: Requests in the engine; None: it does not answer.
    #: What grows with the engine's work, by name.
    counters: Mapping[str, float] = field(default_factory=dict)
    watched: bool = False  #: Whether the wedge watch may have asked the engine since the last look.


class Idle:
    """How long what is hot has had no request, by one look after another."""

    def __init__(self) -> None:
        self._last = Look(None)
        self._busy = 0.0

    def seconds(self, look: Look, now: float) -> float:
        """Since its last request, or since it became hot; as far as it was looked at."""
        fresh = (look.hot, look.since) != (self._last.hot, self._last.since)
        # Every few minutes the watch asks an engine that rests for a token.
        engine = look.outstanding != 0 or look.counters != self._last.counters
        if fresh or look.running or (engine and not look.watched):
            self._busy = now
        elif look.asked is not None:
            self._busy = max(self._busy, look.asked)
        self._last = look
        return now - self._busy if look.hot else 0.0


@dataclass
class Rest:
    """Looks now and then, and lets a model go that rests for `ttl_s` seconds.

    `swaps` has it stopped, unless somebody comes.
    """

    hot: Hot
    host: config.Host
    swaps: Swaps
    ttl_s: float
    paths: layout.Paths = field(default_factory=layout.Paths)
    now: Callable[[], float] = time.monotonic
    _idle: Idle = field(default_factory=Idle, init=False)

    @property
    def _every_s(self) -> float:
        return min(_LONGEST_S, self.ttl_s / 10)

    async def forever(self) -> None:
        """Look until this is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.step()

    async def step(self) -> None:
        """Look once, and let go what rests."""
        look = await self._look()
        if self._idle.seconds(look, self.now()) < self.ttl_s:
            return
        if said := await self.swaps.let_go():
            rested = f"{look.hot} had no request for {self.ttl_s:.0f} s"
            output.say(f"lockstep gateway: {rested}: {said}")
            self._idle = Idle()

    async def _look(self) -> Look:
        await self.hot.look()
        name = self.hot.now()
        if name is None or not self.host.targets[name].engine_url:
            return Look(None)
        outstanding: int | None = None
        counters: Mapping[str, float] = {}
        with suppress(openai_api.NotReady):
            engine = self.host.targets[name].itself
            counted = await asyncio.to_thread(openai_api.counters, engine, None, _COUNTERS_S)
            outstanding = counted.outstanding if counted else 0
            counters = counted.moving if counted else {}
        idle = self.hot.idle_s(name)
        # It notes that before it asks, and a token may take a moment.
        asked = wedge_state.load(self.paths).asked_at
        return Look(
            hot=name,
            since=self.hot.changed_at(name),
            asked=None if idle is None else self.now() - idle,
            running=self.hot.running(name),
            outstanding=outstanding,
            counters=counters,
            watched=self.now() - asked <= 2 * self._every_s + 1,
        )
