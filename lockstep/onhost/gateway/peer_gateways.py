"""The gateways of peers: their models and facts, and requests between gateways.

Both sides show a certificate of the authority of Sparks (`access.peer_tls`). A request is forwarded
once at most: a gateway answers forwarded requests itself or refuses them.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import address_text, errors, event_lines, layout
from lockstep.onhost.gateway import outgoing_connections
from lockstep.onhost.gateway.configuration import (
    PEER_HEADERS,
    GatewayConfiguration,
    PeerGateway,
)
from lockstep.onhost.gateway.keys import ROLES, Person
from lockstep.onhost.gateway.outgoing_connections import FAULTS
from lockstep.onhost.gateway.wire.gateway_answers import Headers

#: Seconds for which an answer counts as new, and after which the next one is waited for.
FRESH_S, OLD_S = 2.0, 10.0
ANSWER_S = 1.0  #: Seconds that another gateway may take for its list of models.
# Seconds that another gateway may take for its host's facts: it runs several programs.
_FACTS_S = 5.0

Model = dict[str, Any]


@dataclass
class _PeerState:
    """State of another gateway; `models` is None until its first answer."""

    peer: PeerGateway
    models: dict[str, Model] | None = None
    silent: bool = False
    last_asked: float = float("-inf")
    asking: asyncio.Task[None] | None = field(default=None, repr=False)
    facts: dict[str, Any] | None = None
    telling: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def hot(self) -> str | None:
        """The hot model there by its last answer, "" for none; None if the gateway is silent."""
        if self.silent or self.models is None:
            return None
        models_of_peer = ((model["id"], model["lockstep"]) for model in self.models.values())
        return next(
            (name for name, of in models_of_peer if of["hot"] and not of.get("alias_of")), ""
        )


class Peers:
    """The gateways of all peers of one host; `tls` is this one's side if there are any."""

    def __init__(self, gateway: GatewayConfiguration, tls: ssl.SSLContext | None = None) -> None:
        self._host = gateway.host
        self._states = {peer.name: _PeerState(peer) for peer in gateway.peers}
        #: The transport of requests to peers.
        self.transport = outgoing_connections.http_transport(
            outgoing_connections.dead_peer_socket_options(), tls
        )

    async def models_with_peers(self, own: Iterable[Model]) -> list[Model]:
        """Return this host's models and those of peers, each name once.

        A name that several hosts have is this host's entry, whose `lockstep` lists the others as
        `peers`. Of a name that only peers have, the hot entry is taken, else the first. `state` is
        "silent" if the entry's host does not answer.
        """
        await self._query_due_peers()
        models_by_name = {model["id"]: model for model in own}
        for state in self._states.values():
            for name, peer_model in (state.models or {}).items():
                lockstep_part = {**peer_model["lockstep"], "host": state.peer.name}
                if state.silent:
                    lockstep_part |= {"state": "silent", "hot": False}
                entry = {**peer_model, "lockstep": lockstep_part}
                have = models_by_name.get(name)
                if have is None:
                    models_by_name[name] = entry
                    continue
                if have["lockstep"]["host"] != self._host and lockstep_part["hot"]:
                    have, entry = entry, have
                brief = {key: entry["lockstep"][key] for key in ("host", "state", "hot")}
                peers = [*have["lockstep"].get("peers", ()), brief]
                models_by_name[name] = {**have, "lockstep": {**have["lockstep"], "peers": peers}}
        return list(models_by_name.values())

    async def gateways_serving(self, name: str, *, cold: bool = False) -> list[PeerGateway]:
        """Return the gateways that now serve a model, by their last answers; [] for none.

        With `cold`, gateways that know the name but would have to switch follow the hot ones.
        """
        await self._query_due_peers()
        hot, cold_peers = list[PeerGateway](), list[PeerGateway]()
        for state in self._states.values():
            model = None if state.silent else (state.models or {}).get(name)
            if model is not None:
                (hot if model["lockstep"]["hot"] else cold_peers).append(state.peer)
        return hot + (cold_peers if cold else [])

    async def hot_model_by_peer(self) -> dict[str, str | None]:
        """Return the hot model of each peer, "" for none; None if the peer does not answer."""
        await self._query_due_peers()
        await asyncio.gather(*(state.asking for state in self._states.values() if state.asking))
        return {name: state.hot for name, state in self._states.items()}

    async def facts_by_peer(self) -> dict[str, Any]:
        """Return the last facts of each peer by name, {"fault": reason} for a silent one."""
        new = []
        for state in self._states.values():
            if state.telling is None or state.telling.done():
                state.telling = asyncio.create_task(self._fetch_facts(state))
            if state.facts is None:
                new.append(state.telling)
        if new:
            await asyncio.wait(new, timeout=ANSWER_S)
        unknown = {"fault": "has not answered yet"}
        return {name: state.facts or unknown for name, state in self._states.items()}

    async def _fetch_facts(self, state: _PeerState) -> None:
        try:
            async with asyncio.timeout(_FACTS_S):
                state.facts = await self._fetch_document(state.peer, "/status")
        except FAULTS as why:
            state.facts = {"fault": f"does not answer: {errors.why(why)}"}

    def mark_failed(self, peer: PeerGateway) -> None:
        """Mark a peer as silent after a failed request, until it answers again."""
        self._states[peer.name].silent = True

    def forwarding_headers(self, person: Person) -> Headers:
        """Return the headers that a request to another gateway carries beside the client's."""
        values = (person.name.encode(), person.role.encode())
        return list(zip(PEER_HEADERS, values, strict=True))

    def caller_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Return the person another gateway forwards for; None if its headers name none."""
        peer_headers = sorted((name, value) for name, value in headers if name in PEER_HEADERS)
        if [name for name, _ in peer_headers] != sorted(PEER_HEADERS):
            return None
        name, role = (dict(peer_headers)[header].decode("latin-1") for header in PEER_HEADERS)
        if role not in ROLES or not re.fullmatch(r"[\w.@-]{1,64}", name, re.ASCII):
            return None
        return Person(name, "operate" if role == "operate" else "use")

    async def _query_due_peers(self) -> None:
        """Query peers that were not queried just now; wait for those without a recent answer."""
        tasks = []
        now = time.monotonic()
        for state in self._states.values():
            age = now - state.last_asked
            if age >= FRESH_S and (state.asking is None or state.asking.done()):
                state.asking = asyncio.create_task(self._query_peer(state))
            if age >= OLD_S and state.asking is not None:
                tasks.append(state.asking)
        if tasks:
            await asyncio.wait(tasks)

    async def _query_peer(self, state: _PeerState) -> None:
        was = state.silent
        try:
            async with asyncio.timeout(ANSWER_S):
                models = await self._fetch_models(state.peer)
        except FAULTS as why:
            state.silent = True
            if not was:
                fault = f"{state.peer.name} does not answer: {errors.why(why)}"
                event_lines.say(f"lockstep gateway: {fault}")
        else:
            state.models, state.silent = models, False
        state.last_asked = time.monotonic()

    async def _fetch_models(self, peer: PeerGateway) -> dict[str, Model]:
        data = (await self._fetch_document(peer, "/v1/models"))["data"]
        for model in data:
            # Fail here rather than later if an entry lacks these keys.
            model["lockstep"]["hot"], model["lockstep"]["state"]
        return {str(model["id"]): model for model in data}

    async def _fetch_document(self, peer: PeerGateway, path: str) -> dict[str, Any]:
        """Return a JSON document of another gateway; raise one of `FAULTS` if it gives none."""
        own_headers = self.forwarding_headers(Person(self._host, "use"))
        request = httpx2.Request("GET", peer_url(peer) + path, headers=own_headers)
        return await outgoing_connections.fetch_json_object(self.transport, request)


def peer_url(peer: PeerGateway) -> str:
    """Return the URL of a gateway's `peers` listener, without a path."""
    return address_text.url(peer.address, peer.port, "https")


def client_context(gateway: GatewayConfiguration, paths: layout.Paths) -> ssl.SSLContext | None:
    """Return this gateway's side of TLS as a client of its peers; None if it has none.

    Raises:
        errors.Problem: This host's certificate cannot be read.
    """
    if not gateway.peers:
        return None
    hosts = {peer.address: peer.name for peer in gateway.peers}
    return peer_tls.client_context(_own_identity_path(gateway, paths), peer_tls.GATEWAY, hosts)


def server_context(gateway: GatewayConfiguration, paths: layout.Paths) -> ssl.SSLContext | None:
    """Return this gateway's side of TLS at its listener for peers; else as `client_context`."""
    if not gateway.peers:
        return None
    return peer_tls.make_context(_own_identity_path(gateway, paths), is_server=True)


def expected_peer_names(gateway: GatewayConfiguration) -> frozenset[str]:
    """Return the names of the certificates that peers show."""
    names = (peer_tls.certificate_name(peer_tls.GATEWAY, peer.name) for peer in gateway.peers)
    return frozenset(names)


def _own_identity_path(gateway: GatewayConfiguration, paths: layout.Paths) -> Path:
    return peer_tls.identity_path(paths, peer_tls.GATEWAY, gateway.host)
