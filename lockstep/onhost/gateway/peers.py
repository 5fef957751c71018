"""The gateways of other Sparks: what they serve, and how one gateway proves itself to another.

A request goes on to another gateway once at most: what came by one is answered here or not at all.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from lockstep.onhost.core import address, errors, output
from lockstep.onhost.gateway import connections
from lockstep.onhost.gateway.configuration import PEER_HEADERS, PEER_KEY_CREDENTIAL, Gateway, Peer
from lockstep.onhost.gateway.connections import FAULTS
from lockstep.onhost.gateway.keys import ROLES, Person
from lockstep.onhost.gateway.wire.answers import Headers

#: An answer counts as new for so long, and is waited for only when it is older than the second
#: one, seconds.
FRESH_S, OLD_S = 2.0, 10.0
ANSWER_S = 1.0  #: What another gateway may take for its list of models, seconds.
# What another gateway may take for the facts of its host, seconds: it asks several programs.
_FACTS_S = 5.0

Model = dict[str, Any]


@dataclass
class _Twin:
    """What is known of another gateway: None for its models while it has never answered."""

    peer: Peer
    models: dict[str, Model] | None = None
    silent: bool = False
    asked: float = float("-inf")
    asking: asyncio.Task[None] | None = field(default=None, repr=False)
    facts: dict[str, Any] | None = None
    telling: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def hot(self) -> str | None:
        """The target that is hot there by its last answer, "" for none; None: it is silent."""
        if self.silent or self.models is None:
            return None
        said = ((model["id"], model["lockstep"]) for model in self.models.values())
        return next((name for name, of in said if of["hot"] and not of.get("alias_of")), "")


class Peers:
    """The other gateways of one host; Problem where their key is missing and there are some."""

    def __init__(self, gateway: Gateway, key: str = "") -> None:
        self._host = gateway.host
        self._twins = {peer.name: _Twin(peer) for peer in gateway.peers}
        self._key = key.encode("ascii")
        if self._twins and not key:
            what = f"credential {PEER_KEY_CREDENTIAL}, which gateways of peers know each other by"
            raise errors.Problem(f"no {what}. Remedy: run the deploy")
        self._transport = connections.transport(connections.alive())

    async def listing(self, own: Iterable[Model]) -> list[Model]:
        """This host's models and those of the others, each name once.

        A name that several have is this host's entry, whose `lockstep` lists the others as `twins`.
        An entry that only others have is the hot one of them, else the first; `state` is "silent"
        where its host does not answer.
        """
        await self._look()
        found = {model["id"]: model for model in own}
        for twin in self._twins.values():
            for name, theirs in (twin.models or {}).items():
                said = {**theirs["lockstep"], "host": twin.peer.name}
                if twin.silent:
                    said |= {"state": "silent", "hot": False}
                entry = {**theirs, "lockstep": said}
                have = found.get(name)
                if have is None:
                    found[name] = entry
                    continue
                if have["lockstep"]["host"] != self._host and said["hot"]:
                    have, entry = entry, have
                brief = {key: entry["lockstep"][key] for key in ("host", "state", "hot")}
                twins = [*have["lockstep"].get("twins", ()), brief]
                found[name] = {**have, "lockstep": {**have["lockstep"], "twins": twins}}
        return list(found.values())

    async def holders(self, name: str, *, cold: bool = False) -> list[Peer]:
        """The gateways that answer for a model now, by what they said last; [] for none.

        `cold`: those too that know the name and would have to switch; the hot ones come first.
        """
        await self._look()
        hot, others = list[Peer](), list[Peer]()
        for twin in self._twins.values():
            model = None if twin.silent else (twin.models or {}).get(name)
            if model is not None:
                (hot if model["lockstep"]["hot"] else others).append(twin.peer)
        return hot + (others if cold else [])

    async def hot(self) -> dict[str, str | None]:
        """What is hot at each of the others, "" for nothing; None where it does not say."""
        await self._look()
        await asyncio.gather(*(twin.asking for twin in self._twins.values() if twin.asking))
        return {name: twin.hot for name, twin in self._twins.items()}

    async def facts(self) -> dict[str, Any]:
        """What the others said last of their hosts by name, {"fault": why} where one does not."""
        new = []
        for twin in self._twins.values():
            if twin.telling is None or twin.telling.done():
                twin.telling = asyncio.create_task(self._tell(twin))
            if twin.facts is None:
                new.append(twin.telling)
        if new:
            await asyncio.wait(new, timeout=ANSWER_S)
        unknown = {"fault": "has not answered yet"}
        return {name: twin.facts or unknown for name, twin in self._twins.items()}

    async def _tell(self, twin: _Twin) -> None:
        try:
            async with asyncio.timeout(_FACTS_S):
                twin.facts = await self._got(twin.peer, "/status")
        except FAULTS as why:
            twin.facts = {"fault": f"does not answer: {errors.why(why)}"}

    def failed(self, peer: Peer) -> None:
        """A request found nobody there: none is sent there until it has answered again."""
        self._twins[peer.name].silent = True

    def headers(self, person: Person) -> Headers:
        """What a request to another gateway carries besides the client's own headers."""
        values = (self._key, person.name.encode(), person.role.encode())
        return list(zip(PEER_HEADERS, values, strict=True))

    def who(self, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Whom another gateway says that it asks for; None where it does not prove itself."""
        given = sorted((name, value) for name, value in headers if name in PEER_HEADERS)
        if [name for name, _ in given] != sorted(PEER_HEADERS) or not self._key:
            return None
        key, *said = (dict(given)[each] for each in PEER_HEADERS)
        if not hmac.compare_digest(key, self._key):
            return None
        name, role = (value.decode("latin-1") for value in said)
        if role not in ROLES or not re.fullmatch(r"[\w.@-]{1,64}", name, re.ASCII):
            return None
        return Person(name, "operate" if role == "operate" else "use")

    async def _look(self) -> None:
        """Ask whoever was not asked just now; wait for those of whom nothing new is known."""
        waited = []
        now = time.monotonic()
        for twin in self._twins.values():
            age = now - twin.asked
            if age >= FRESH_S and (twin.asking is None or twin.asking.done()):
                twin.asking = asyncio.create_task(self._ask(twin))
            if age >= OLD_S and twin.asking is not None:
                waited.append(twin.asking)
        if waited:
            await asyncio.wait(waited)

    async def _ask(self, twin: _Twin) -> None:
        was = twin.silent
        try:
            async with asyncio.timeout(ANSWER_S):
                models = await self._models(twin.peer)
        except FAULTS as why:
            twin.silent = True
            if not was:
                said = f"{twin.peer.name} does not answer: {errors.why(why)}"
                output.say(f"lockstep gateway: {said}")
        else:
            twin.models, twin.silent = models, False
        twin.asked = time.monotonic()

    async def _models(self, peer: Peer) -> dict[str, Model]:
        data = (await self._got(peer, "/v1/models"))["data"]
        for model in data:
            # What is not as a gateway lists it must not fail where it is used.
            model["lockstep"]["hot"], model["lockstep"]["state"]
        return {str(model["id"]): model for model in data}

    async def _got(self, peer: Peer, path: str) -> dict[str, Any]:
        """A JSON document of another gateway; one of `FAULTS` where it gives none."""
        mine = self.headers(Person(self._host, "use"))
        request = httpx2.Request("GET", url(peer) + path, headers=mine)
        return await connections.document(self._transport, request)


def url(peer: Peer) -> str:
    """Where a gateway listens for others, without a path."""
    return address.url(peer.address, peer.port)


def key() -> str:
    """The key that systemd gave this unit; "" without one."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder or "/nonexistent", PEER_KEY_CREDENTIAL)
    return path.read_text(encoding="ascii").strip() if folder and path.exists() else ""
