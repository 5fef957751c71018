"""Queue of requests that need a switch to their model, done by the normal switch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from lockstep.onhost.core import config, errors, event_lines, layout, switch_lock
from lockstep.onhost.engine import openai_api
from lockstep.onhost.gateway import switch_client
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.fair_model_queue import (
    NONE,
    FairQueue,
    QueuedRequest,
    QueueView,
    TurnRefusal,
)
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.model_names import AUTO
from lockstep.onhost.gateway.peer_gateways import Peers

__all__ = ["SwitchQueue", "TurnRefusal"]

#: Seconds between two checks whether the next switch may begin.
EVERY_S = 0.5
_COUNTERS_S = 3.0
_MOVING = ("loading", "restarting", "stopping")

#: The type of `switch_client.request_switch`.
Ask = Callable[[str, str | None], AsyncGenerator[dict[str, Any], None]]


@dataclass
class SwitchQueue:
    """Requests of one gateway that wait for their model.

    `hot` is queried again and again, because anybody may switch at any time.
    """

    hot: HotModel
    host: config.HostConfig  #: The models of this host.
    gateway: GatewayConfiguration  #: Uses `swap_on_request`, `least_hot_s` and `queue`.
    paths: layout.Paths = field(default_factory=layout.Paths)
    #: The other gateways, which know what other members of a cluster do; None if there are none.
    peers: Peers | None = None
    switch: Ask = switch_client.request_switch
    _elsewhere: Mapping[str, str | None] | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _driver: asyncio.Task[None] | None = field(default=None, init=False)
    _switch: asyncio.Task[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._turns = FairQueue(self.gateway.least_hot_s, self.gateway.queue)

    @property
    def waiting_by_model(self) -> Counter[str]:
        """Number of waiting requests by model."""
        return self._turns.waiting_by_model

    @asynccontextmanager
    async def hold_hot_model(self, model: str, person: str | None) -> AsyncIterator[None]:
        """Enter once the model or its fallback is hot, and keep it hot until the block ends.

        Every request to an engine passes here, also one for the hot model, because it may have to
        wait behind others. A cancelled request leaves the queue.

        Args:
            model: A name of models.json that answers on this host, or `auto`: the model that is
                hot at this request's turn, for which nothing is switched.
            person: The person in whose name the switch is made.

        Raises:
            TurnRefused: The queue is full, or the switch failed, with its own reason.
        """
        outcome = asyncio.Event()
        waiter = QueuedRequest(model, person, outcome.set)
        # The usual case, without a check of all models.
        hot = self.hot.hot_name() if model == AUTO else self.hot.serving_variant(model)
        usual = self._turns.has_no_waiter_or_switch and hot
        host_view = QueueView(frozenset((model,))) if usual else self._host_view()
        self._turns.admit_or_queue(waiter, host_view, time.monotonic())
        try:
            if waiter.state == "waits":
                self._wake_driver()
                await outcome.wait()
            if waiter.refusal:
                raise waiter.refusal
            yield
        finally:
            self._turns.end_request(waiter)
            self._wake.set()

    def _wake_driver(self) -> None:
        self._wake.set()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._serve_until_queue_empty())

    async def _serve_until_queue_empty(self) -> None:
        try:
            while not self._turns.has_no_waiter_or_switch:
                self._wake.clear()
                await self.hot.refresh_unit_states()
                if any(map(self.host.cluster_of_model, {*self._turns.waiting_by_model} - {AUTO})):
                    self._elsewhere = await self.peers.hot_model_by_peer() if self.peers else {}
                self._turns.settle_waiting_requests(self._host_view(), time.monotonic())
                if (
                    self._turns.next_request_to_switch_for(self._host_view())
                    and not await self.has_engine_requests()
                ):
                    # The queue may have changed during the query.
                    waiter = self._turns.next_request_to_switch_for(self._host_view())
                    if waiter:
                        self._turns.begin_switch(waiter.model)
                        work = self._switch_to(waiter.model, waiter.person)
                        self._switch = asyncio.create_task(work)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), EVERY_S)
        except Exception as fault:
            # Nobody may keep waiting in a queue that is no longer served.
            self._turns.refuse_all_waiting(
                "the gateway could not find out what is hot; its journal says why"
            )
            event_lines.say(f"lockstep gateway: {type(fault).__name__}: {fault}")
        finally:
            self._elsewhere = None

    async def stop_unused_model(self) -> str:
        """Stop the hot model and return its outcome, or "" if it is in use or awaited.

        Requests that arrive meanwhile wait until the stop has ended.
        """
        await self.hot.refresh_unit_states()
        if await self.has_engine_requests() or not self._turns.may_stop_hot_model(
            self._host_view()
        ):
            return ""
        self._turns.begin_switch(NONE)
        return await self._switch_to(NONE, None)

    async def _switch_to(self, model: str, person: str | None) -> str:
        end: dict[str, Any] = {"code": errors.EXIT_FAILED, "said": "there was no answer"}
        try:
            async with aclosing(self.switch(model, person)) as phases:
                async for message in phases:
                    if "code" in message:
                        end = message
        finally:
            self.hot.discard_known_state()
            self._turns.end_switch(end["code"], end["said"], time.monotonic())
            self._wake.set()
        return str(end["said"])

    async def has_engine_requests(self) -> bool:
        """Tell whether clients use the hot engine's own port; True if the engine does not say."""
        name = self.hot.hot_name()
        if name is None:
            return False
        engine = self.host.models[name].at_engine_address
        try:
            counters = await asyncio.to_thread(openai_api.counters, engine, None, _COUNTERS_S)
        except openai_api.NotReady:
            return True
        return counters is not None and counters.outstanding > 0

    def _host_view(self) -> QueueView:
        name = self.hot.hot_name()
        answering_models = [model for model in self.host.models if self.hot.serving_variant(model)]
        return QueueView(
            serves=frozenset((*answering_models, AUTO) if answering_models else ()),
            hot_s=time.monotonic() - self.hot.state_change_time(name) if name else 0.0,
            running=self.hot.running_requests(name) if name else 0,
            moving=self._switch_under_way_text(),
            busy_models=self._unswitchable_models(name),
        )

    def _switch_under_way_text(self) -> str:
        if not self.hot.has_systemd_answered:
            return "systemd does not answer"
        holder = switch_lock.holder(self.paths.switch_lock)
        if holder:
            return str(holder)
        states = ((name, self.hot.state_of(name)) for name in self.host.models)
        return next((f"{name} is {state}" for name, state in states if state in _MOVING), "")

    def _unswitchable_models(self, name: str | None) -> dict[str, str]:
        """Return models that no request may make hot, with the reason."""
        host = self.host
        cluster = host.cluster_of_model(name) if name else None
        if not self.gateway.swap_on_request:
            why = f"{name or 'no model'} is hot, and requests switch no models here"
            return dict.fromkeys(host.models, why)
        if cluster and cluster.rank:
            # Its requests are only visible at its first member.
            why = (
                f"{name} is hot here, and {cluster.first_member.name} answers for it: switch there"
            )
            return dict.fromkeys(host.models, why)
        reasons = (
            (name, self._cluster_use_reason(host.cluster_of_model(name))) for name in host.models
        )
        return {name: why for name, why in reasons if why}

    def _cluster_use_reason(self, cluster: config.Cluster | None) -> str:
        """Return the reason why no request may switch a cluster's members, or "".

        Requests for models of the other members are not visible here.
        """
        if cluster is None or self._elsewhere is None:
            return ""
        for member in cluster.other_members:
            hot = self._elsewhere.get(member.name)
            if hot is None:
                return f"the gateway of {member.name} does not say what is hot there"
            if hot:
                return f"{hot} is hot on {member.name}, which {cluster.name} needs: switch by hand"
        return ""
