"""Lets a model go that nobody has asked for some time (`gateway.ttl_s`), by an ordinary switch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lockstep.onhost.core import config, layout, output
from lockstep.onhost.engine import openai_api
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.swap import Swaps
from lockstep.onhost.switching import wedge_state

_LONGEST_S = 5.0
_COUNTERS_S = 3.0


@dataclass(frozen=True)
class Look:
    """One look at the host; times are in seconds of the monotonic clock.

    Attributes:
        hot: The hot target; None: none is, or its requests are not seen here.
        since: When it became hot.
        asked: When its last request by the gateway ended; None: one runs, or there was none.
        running: Requests at it by the gateway.
        outstanding: Requests in the engine; None: it does not answer.
        counters: What grows with the engine's work, by name.
        watched: Whether the wedge watch may have asked the engine since the last look.
    """

    hot: str | None
    since: float = 0.0
    asked: float | None = None
    running: int = 0
    outstanding: int | None = 0
    counters: Mapping[str, float] = field(default_factory=dict)
    watched: bool = False


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


class Rest:
    """Looks now and then, and lets a model go that rests for `ttl_s` seconds.

    Args:
        host: The targets of this host.
        swaps: What has it stopped, unless somebody comes.
    """

    def __init__(
        self,
        hot: Hot,
        host: config.Host,
        swaps: Swaps,
        ttl_s: float,
        paths: layout.Paths | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hot = hot
        self._host = host
        self._swaps = swaps
        self._ttl_s = ttl_s
        self._every_s = min(_LONGEST_S, ttl_s / 10)
        self._paths = paths or layout.Paths()
        self._now = now
        self._idle = Idle()

    async def forever(self) -> None:
        """Look until this is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.step()

    async def step(self) -> None:
        """Look once, and let go what rests."""
        look = await self._look()
        if self._idle.seconds(look, self._now()) < self._ttl_s:
            return
        if said := await self._swaps.let_go():
            output.say(
                f"lockstep gateway: {look.hot} had no request for {self._ttl_s:.0f} s: {said}"
            )
            self._idle = Idle()

    async def _look(self) -> Look:
        await self._hot.look()
        name = self._hot.now()
        target = self._host.targets[name] if name else None
        if name is None or target is None or not target.engine_url:
            return Look(None)
        engine = replace(target, url=target.engine_url)
        outstanding: int | None = None
        counters: Mapping[str, float] = {}
        try:
            counted = await asyncio.to_thread(openai_api.counters, engine, None, _COUNTERS_S)
            outstanding = counted.outstanding if counted else 0
            counters = counted.moving if counted else {}
        except openai_api.NotReady:
            pass
        idle = self._hot.idle_s(name)
        # It notes that before it asks, and a token may take a moment.
        asked = wedge_state.load(self._paths).asked_at
        return Look(
            hot=name,
            since=self._hot.changed_at(name),
            asked=None if idle is None else self._now() - idle,
            running=self._hot.running(name),
            outstanding=outstanding,
            counters=counters,
            watched=self._now() - asked <= 2 * self._every_s + 1,
        )
