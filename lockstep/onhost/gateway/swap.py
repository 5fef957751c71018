"""Has the target of a request made hot, by the ordinary switch, when it is its turn."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from lockstep.onhost.core import config, errors, layout, output, switch_lock
from lockstep.onhost.engine import openai_api
from lockstep.onhost.gateway import ask
from lockstep.onhost.gateway.configuration import Gateway
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.models import AUTO
from lockstep.onhost.gateway.peers import Peers
from lockstep.onhost.gateway.turns import NONE, Refused, Seen, Turns, Waiter

__all__ = ["Refused", "Swaps"]

#: How often one looks whether the next switch may begin, seconds.
EVERY_S = 0.5
_COUNTERS_S = 3.0
_MOVING = ("loading", "restarting", "stopping")

#: As `ask.switch`.
Ask = Callable[[str, str | None], AsyncGenerator[dict[str, Any], None]]


@dataclass
class Swaps:
    """Requests of one gateway that wait for their target.

    What is hot is asked of `hot` again and again: anybody may switch at any time.
    """

    hot: Hot
    host: config.Host  #: The targets of this host.
    gateway: Gateway  #: `swap_on_request`, `least_hot_s` and `queue` of it.
    paths: layout.Paths = field(default_factory=layout.Paths)
    #: The other gateways, which know what the other members of a cluster do; None: none.
    peers: Peers | None = None
    switch: Ask = ask.switch
    _elsewhere: Mapping[str, str | None] | None = field(default=None, init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _driver: asyncio.Task[None] | None = field(default=None, init=False)
    _switch: asyncio.Task[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._turns = Turns(self.gateway.least_hot_s, self.gateway.queue)

    @property
    def waiting(self) -> Counter[str]:
        """How many requests wait for each target."""
        return self._turns.waiting

    @asynccontextmanager
    async def until_hot(self, target: str, person: str | None) -> AsyncIterator[None]:
        """Enter when the target, or its fallback, is hot. No request takes it away until the end.

        Every request to an engine comes through here, also one for what is hot: it may have to
        wait behind others. Whoever is cancelled meanwhile has left.

        Args:
            target: A name of targets.json that answers on this host, or `auto`: whatever is hot
                when it is its turn. For that nothing is switched.
            person: In whose name it is switched.

        Raises:
            Refused: the queue is full, or the switch failed, with its own reason.
        """
        outcome = asyncio.Event()
        waiter = Waiter(target, person, outcome.set)
        # The usual case, without a look at all targets.
        hot = self.hot.now() if target == AUTO else self.hot.serves(target)
        usual = self._turns.idle and hot
        seen = Seen(frozenset((target,))) if usual else self._seen()
        self._turns.arrive(waiter, seen, time.monotonic())
        try:
            if waiter.state == "waits":
                self._drive()
                await outcome.wait()
            if waiter.refusal:
                raise waiter.refusal
            yield
        finally:
            self._turns.leave(waiter)
            self._woken.set()

    def _drive(self) -> None:
        self._woken.set()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._until_idle())

    async def _until_idle(self) -> None:
        try:
            while not self._turns.idle:
                self._woken.clear()
                await self.hot.look()
                if any(map(self.host.cluster, {*self._turns.waiting} - {AUTO})):
                    self._elsewhere = await self.peers.hot() if self.peers else {}
                self._turns.step(self._seen(), time.monotonic())
                if self._turns.next(self._seen()) and not await self.busy():
                    # Somebody may have left, and somebody else have come.
                    waiter = self._turns.next(self._seen())
                    if waiter:
                        self._turns.begin(waiter.target)
                        work = self._switched(waiter.target, waiter.person)
                        self._switch = asyncio.create_task(work)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), EVERY_S)
        except Exception as fault:
            # Nobody is left waiting for what no longer looks.
            self._turns.give_up("the gateway could not find out what is hot; its journal says why")
            output.say(f"lockstep gateway: {type(fault).__name__}: {fault}")
        finally:
            self._elsewhere = None

    async def let_go(self) -> str:
        """Have what is hot stopped; what came of it, or "" where somebody uses it or waits.

        Who comes meanwhile waits until it has ended.
        """
        await self.hot.look()
        if await self.busy() or not self._turns.may_rest(self._seen()):
            return ""
        self._turns.begin(NONE)
        return await self._switched(NONE, None)

    async def _switched(self, target: str, person: str | None) -> str:
        end: dict[str, Any] = {"code": errors.EXIT_FAILED, "said": "there was no answer"}
        try:
            async with aclosing(self.switch(target, person)) as told:
                async for message in told:
                    if "code" in message:
                        end = message
        finally:
            self.hot.changed()
            self._turns.ended(end["code"], end["said"], time.monotonic())
            self._woken.set()
        return str(end["said"])

    async def busy(self) -> bool:
        """Whether the hot engine has requests of clients of its own port, or does not say."""
        name = self.hot.now()
        if name is None:
            return False
        engine = self.host.targets[name].itself
        try:
            counted = await asyncio.to_thread(openai_api.counters, engine, None, _COUNTERS_S)
        except openai_api.NotReady:
            return True
        return counted is not None and counted.outstanding > 0

    def _seen(self) -> Seen:
        name = self.hot.now()
        answered = [each for each in self.host.targets if self.hot.serves(each)]
        return Seen(
            serves=frozenset((*answered, AUTO) if answered else ()),
            hot_s=time.monotonic() - self.hot.changed_at(name) if name else 0.0,
            running=self.hot.running(name) if name else 0,
            moving=self._moving(),
            taken=self._taken(name),
        )

    def _moving(self) -> str:
        if not self.hot.known:
            return "systemd does not answer"
        holder = switch_lock.holder(self.paths.switch_lock)
        if holder:
            return str(holder)
        states = ((name, self.hot.state(name)) for name in self.host.targets)
        return next((f"{name} is {state}" for name, state in states if state in _MOVING), "")

    def _taken(self, name: str | None) -> dict[str, str]:
        """Why no request may have a target made hot, by target."""
        host = self.host
        cluster = host.cluster(name) if name else None
        if not self.gateway.swap_on_request:
            why = f"{name or 'no model'} is hot, and requests switch no models here"
            return dict.fromkeys(host.targets, why)
        if cluster and cluster.rank:
            # Its requests are seen where its first member is.
            why = f"{name} is hot here, and {cluster.first.name} answers for it: switch there"
            return dict.fromkeys(host.targets, why)
        found = ((target, self._in_use(host.cluster(target))) for target in host.targets)
        return {target: why for target, why in found if why}

    def _in_use(self, cluster: config.Cluster | None) -> str:
        """Why a request may not have the members of a cluster switched; "" where it may.

        Who uses another member's model is not seen here.
        """
        if cluster is None or self._elsewhere is None:
            return ""
        for member in cluster.others:
            hot = self._elsewhere.get(member.name)
            if hot is None:
                return f"the gateway of {member.name} does not say what is hot there"
            if hot:
                return f"{hot} is hot on {member.name}, which {cluster.name} needs: switch by hand"
        return ""
