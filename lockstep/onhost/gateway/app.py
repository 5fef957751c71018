"""The gateway as an ASGI application: its paths, and what each one does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import prometheus_client
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route, Router

from lockstep.onhost.core import config, errors
from lockstep.onhost.gateway import ask, swap
from lockstep.onhost.gateway.access import KEY_HEADERS, PEER_HEADERS, Access, Caller, is_loopback
from lockstep.onhost.gateway.configuration import Gateway, Peer
from lockstep.onhost.gateway.counts import Counts
from lockstep.onhost.gateway.forward import Answer, Upstream, end_to_end
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.limits import Slots
from lockstep.onhost.gateway.models import AUTO, Models
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.peers import Peers, alive, url
from lockstep.onhost.gateway.wire import answers, incoming, refusals
from lockstep.onhost.gateway.wire.answers import Headers, Message, Receive, Refused, Send
from lockstep.onhost.gateway.wire.body import Body, too_large

#: Paths that go to the model that the body names.
MODEL_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score"),
    *("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank", "/rerank", "/v2/rerank"),
    *("/tokenize", "/detokenize"),
)
CHAT = "/v1/chat/completions"
#: Paths without any fact, which answer without a key.
FREE = ("/", "/health", "/root.crt")
#: When a cold target is worth asking again, seconds: a quick switch.
COLD_RETRY_S = 60
_DOWN_RETRY_S = 5
_LOCKED_RETRY_S = 30
_LONGEST_SWITCH = 4096


@dataclass(frozen=True)
class Parts:
    """What the gateway is made of."""

    gateway: Gateway
    host: config.Host
    hot: Hot
    access: Access
    peers: Peers
    counts: Counts
    swaps: swap.Swaps
    page: Page
    authority: Path


class Application:
    """The ASGI application. `scope["state"]["door"]` is the door that a client came to."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gateway = parts.gateway
        self._host = parts.host
        self._hot = parts.hot
        self._models = Models(parts.gateway, parts.host, parts.hot)
        self._slots = Slots(parts.gateway.limits)
        self._upstream = Upstream()
        self._twins = Upstream(alive())
        self._most = parts.gateway.limits.body_mib * 2**20
        self._router = Router(
            [
                Route("/", _Raw(self._page), methods=["GET"]),
                Route("/health", _Raw(_health), methods=["GET"]),
                Route("/root.crt", _Raw(self._root), methods=["GET"]),
                Route("/metrics", _Raw(self._metrics), methods=["GET"]),
                Route("/status", _Raw(self._status), methods=["GET"]),
                Route("/history", _Raw(self._history), methods=["GET"]),
                Route("/switch", _Raw(self._switch), methods=["POST"]),
                Route("/v1/models", _Raw(self._list), methods=["GET"]),
                Route("/v1/models/{name:path}", _Raw(self._model), methods=["GET"]),
                *(Route(path, _Raw(self._ask), methods=["POST"]) for path in MODEL_PATHS),
            ],
            redirect_slashes=False,
            default=_nothing,
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        state, headers = scope["state"], scope["headers"]
        door = state["door"]
        try:
            if door.kind == "target":
                method, path = scope["method"], scope["raw_path"]
                state["caller"] = self._parts.access.caller_of_target(door, method, path, headers)
                await self._target(state["caller"], scope, receive, send)
                return
            if scope["path"] not in FREE:
                state["caller"] = self._parts.access.caller(door, headers)
            # Starlette gives its own refusals back as exceptions then.
            scope["app"] = self
            await self._router(scope, receive, send)
        except HTTPException as fault:
            said = f"{scope['path']} does not take {scope['method']}"
            await self._refuse(scope, receive, send, Refused(fault.status_code, said, "method"))
        except Refused as refused:
            await self._refuse(scope, receive, send, refused)
        except asyncio.CancelledError:
            # The gateway is being stopped: the connection is cut, and nothing is said about it.
            return

    async def _refuse(self, scope: Message, receive: Receive, send: Send, refused: Refused) -> None:
        self._count(scope["state"].get("caller"), refused)
        await answers.refuse(receive, send, answers.api_of(scope["path"]), refused)

    def _count(self, caller: Caller | None, refused: Refused) -> None:
        self._parts.counts.refusal(caller.person.name if caller else None, refused.reason)

    async def _page(self, scope: Message, receive: Receive, send: Send) -> None:
        response = await self._parts.page.page()
        await response(scope, receive, send)

    async def _status(self, scope: Message, receive: Receive, send: Send) -> None:
        caller = scope["state"]["caller"]
        asked = Request(scope, receive)
        response = await self._parts.page.status(asked, caller.person, alone=caller.hops > 0)
        await response(scope, receive, send)

    async def _history(self, scope: Message, receive: Receive, send: Send) -> None:
        response = await self._parts.page.history()
        await response(scope, receive, send)

    async def _root(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            text = await asyncio.to_thread(self._parts.authority.read_bytes)
        except OSError:
            said = "this gateway's certificate is of no authority of its own"
            raise Refused(404, said, "path") from None
        # Phones and browsers offer to install it.
        await answers.send_bytes(send, text, b"application/x-x509-ca-cert")

    async def _metrics(self, scope: Message, receive: Receive, send: Send) -> None:
        kind = prometheus_client.CONTENT_TYPE_LATEST.encode()
        await answers.send_bytes(send, self._parts.counts.text(), kind)

    async def _list(self, scope: Message, receive: Receive, send: Send) -> None:
        data = await self._listing(scope["state"]["caller"])
        await answers.send_json(send, {"object": "list", "data": data})

    async def _model(self, scope: Message, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        for model in await self._listing(scope["state"]["caller"]):
            if model["id"] == name:
                await answers.send_json(send, model)
                return
        raise await self._unknown(name, scope["state"]["caller"])

    async def _listing(self, caller: Caller) -> list[dict[str, Any]]:
        own = await self._models.listing()
        # Another gateway asks each one itself.
        return own if caller.hops else await self._parts.peers.listing(own)

    async def _switch(self, scope: Message, receive: Receive, send: Send) -> None:
        person = scope["state"]["caller"].person
        body = Body(receive)
        wish = incoming.Document(await body.whole(_LONGEST_SWITCH)).read(incoming.Switch)
        if person.role != "operate":
            said = (
                f"{person.name} may use models, not switch them: that takes a key of role operate"
            )
            raise Refused(403, said, "role")
        if wish.target != "none" and wish.target not in self._host.targets:
            known = ", ".join(self._host.targets)
            raise Refused(404, f"no target {wish.target!r} here; targets: {known}, none", "model")
        await body.while_here(self._switching(wish.target, person.name, send))

    async def _switching(self, target: str, person: str, send: Send) -> None:
        answer = Answer(send, "openai", self._gateway.keepalive_s)
        lines = ask.switch(target, person)
        while line := await answer.patiently(anext(lines, None)):
            if line.get("code") == errors.EXIT_LOCKED and not answer.started:
                raise Refused(409, line["said"], "switching", _LOCKED_RETRY_S)
            self._hot.changed()
            await answer.event(line)
        await answer.end()

    async def _ask(self, scope: Message, receive: Receive, send: Send) -> None:
        caller = scope["state"]["caller"]
        with self._place(caller, scope, receive) as body:
            await body.while_here(self._to_model(caller, scope, body, send))

    async def _to_model(self, caller: Caller, scope: Message, body: Body, send: Send) -> None:
        path = scope["path"]
        if any(name == b"content-encoding" for name, _ in scope["headers"]):
            raise Refused(415, "a compressed body cannot be read here", "encoding", close=True)
        document = incoming.Document(await body.whole(self._most))
        asked = document.read(incoming.AskedOfModel)
        refusals.check(asked)
        api, streams = answers.api_of(path), bool(asked.stream)
        answer = Answer(send, api, self._gateway.keepalive_s if streams else None)
        try:
            name = asked.model
            target = await self._models.target(name)
            serving = await self._hot.serving(target) if target else None
            if serving is None and await self._at_peers(
                answer, caller, scope, document, name, target is None
            ):
                return
            if target is None:
                raise await self._unknown(name, caller)
            async with contextlib.AsyncExitStack() as stack:
                wanted = AUTO if name == AUTO else target
                turn = self._parts.swaps.until_hot(wanted, caller.person.name)
                await answer.patiently(stack.enter_async_context(turn))
                if name == AUTO:
                    # Another one than before, where it waited for a switch.
                    target = await self._models.target(AUTO) or target
                serving = self._hot.serves(target)
                if serving is None:
                    raise Refused(503, f"{target} has just ended", "down", _DOWN_RETRY_S)
                merge = path == CHAT and self._gateway.model(serving.name).merge_roles
                content = document.rewritten(serving.model, merge)
                # The path as it is documented: an engine must not read it in another way.
                scope = {**scope, "raw_path": path.encode()}
                # Comments cannot be put into a stream that is compressed.
                but = (b"accept-encoding",) if streams else ()
                headers = _headers(scope, *KEY_HEADERS, *but)
                await self._to_engine(answer, caller, scope, serving, headers, content)
        except swap.Refused as refused:
            said = f"{target} is cold; {refused.words}. {self._who_may(target)}"
            await self._told(
                answer, caller, Refused(refused.status, said, "cold", refused.retry_after_s)
            )
        except Refused as refused:
            await self._told(answer, caller, refused)

    async def _told(self, answer: Answer, caller: Caller, refused: Refused) -> None:
        """Refuse in a stream that has begun; any other answer is `__call__`'s."""
        if not answer.started:
            raise refused
        self._count(caller, refused)
        await answer.break_off(refused)

    async def _to_engine(
        self,
        answer: Answer,
        caller: Caller,
        scope: Message,
        serving: config.Target,
        headers: Headers,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> None:
        """Ask an engine; nothing is waited for between the look at its unit and this."""
        counts, name, began = self._parts.counts, serving.name, time.monotonic()
        with self._hot.using(name):
            counts.request(caller.person.name, name)
            counts.running(name, self._hot.running(name))
            answer.first_byte = lambda: counts.first_byte(name, time.monotonic() - began)
            try:
                assert serving.engine_url is not None
                asking = self._upstream.ask(scope, serving.engine_url, headers, content)
                tail = await answer.pass_on(await answer.patiently(asking))
                counts.tokens(caller.person.name, name, tail)
            except Refused:
                self._hot.changed()
                raise
            finally:
                counts.running(name, self._hot.running(name) - 1)

    async def _at_peers(
        self,
        answer: Answer,
        caller: Caller,
        scope: Message,
        document: incoming.Document,
        name: str,
        only: bool,
    ) -> bool:
        """Have another gateway answer, where one has the model hot; whether one did.

        Args:
            answer, caller, scope, document: Of the request.
            name: The model.
            only: Whether this host has no such model: a cold one there counts then, and that
                nobody there answers is an error.
        """
        refused = None
        # What came from another gateway goes to no third one.
        holders = [] if caller.hops else await self._parts.peers.holders(name, cold=only)
        for peer in holders:
            try:
                response = await self._from_peer(answer, caller, scope, peer, document)
            except Refused as fault:
                refused = fault
            else:
                await answer.pass_on(response)
                return True
        if refused and only:
            raise refused
        return False

    async def _from_peer(
        self,
        answer: Answer,
        caller: Caller,
        scope: Message,
        peer: Peer,
        document: incoming.Document,
    ) -> httpx2.Response:
        """The head of another gateway's answer. Refused: none came, and its client has none yet."""
        headers = _headers(scope, *KEY_HEADERS) + self._parts.peers.headers(caller.person)
        scope = {**scope, "raw_path": scope["path"].encode()}
        body = document.text.encode()
        self._parts.counts.request(caller.person.name, f"at {peer.name}")
        try:
            asking = self._twins.ask(scope, url(peer), headers, body)
            return await answer.patiently(asking)
        except Refused as refused:
            self._parts.peers.failed(peer)
            raise _gone(peer.name) from refused

    async def _target(self, caller: Caller, scope: Message, receive: Receive, send: Send) -> None:
        with self._place(caller, scope, receive) as body:
            await body.while_here(self._through(caller, scope, body, send))

    async def _through(self, caller: Caller, scope: Message, body: Body, send: Send) -> None:
        door = scope["state"]["door"]
        answer = Answer(send, answers.api_of(scope["path"]), None)
        try:
            serving = await self._hot.serving(door.targets[0])
            if serving is None:
                raise Refused(503, f"{door.targets[0]} is loading or down", "down", _DOWN_RETRY_S)
            named = {name for name, _ in scope["headers"]}
            # A key that the port asks for ends here; one for the engine passes.
            dropped = () if is_loopback(door.address) else KEY_HEADERS
            headers = _headers(scope, *dropped, length=True)
            content: bytes | AsyncIterator[bytes] | None = None
            reads = scope["method"] == "POST" and scope["path"] in MODEL_PATHS
            if reads and b"content-encoding" not in named:
                content = self._judged(await body.whole(self._most), scope["path"], serving.name)
                headers = _headers(scope, *dropped)
            elif named & {b"content-length", b"transfer-encoding"}:
                content = body.chunks()
            else:
                body.nothing_expected()
            await self._to_engine(answer, caller, scope, serving, headers, content)
        except Refused as refused:
            await self._told(answer, caller, refused)

    def _judged(self, body: bytes, path: str, target: str) -> bytes:
        """A body for a target's own port: what is no JSON object is the engine's to judge."""
        try:
            document = incoming.Document(body)
        except Refused:
            return body
        refusals.check(document.read(incoming.Asked))
        merge = path == CHAT and self._gateway.model(target).merge_roles
        return document.rewritten(None, merge) if merge else body

    @contextlib.contextmanager
    def _place(self, caller: Caller, scope: Message, receive: Receive) -> Iterator[Body]:
        """A place among the requests under way, and the request's body. Refused: there is none."""
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        own = scope["state"]["door"].kind != "target"
        if own and lengths and lengths[0].isdigit() and int(lengths[0]) > self._most:
            raise too_large(self._most)
        with (
            self._slots.one(caller.person.name if caller.limited else None),
            self._slots.body() as take,
        ):
            yield Body(receive, take)

    def _who_may(self, target: str | None) -> str:
        return (
            f"A key of role operate may switch on {self._gateway.host} (its page, POST /switch), "
            f"and so may a login there: switch.sh {target or 'TARGET'}"
        )

    async def _unknown(self, name: str, caller: Caller) -> Refused:
        known = {model["id"]: model["lockstep"]["host"] for model in await self._listing(caller)}
        if name == AUTO:
            said = f"no model is hot on {self._gateway.host}. {self._who_may(None)}"
            return Refused(503, said, "cold", COLD_RETRY_S)
        if name in known:
            return _gone(known[name])
        said = f"no model {name[:80]!r} here; models: {', '.join(known) or 'none'}"
        return Refused(404, said, "model")


def _gone(twin: str) -> Refused:
    said = f"the gateway of {twin}, which has the model, does not answer"
    return Refused(502, said, "twin", _DOWN_RETRY_S)


class _Raw:
    """An endpoint that Starlette calls as ASGI, without a request object of its own."""

    def __init__(self, endpoint: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._endpoint(scope, receive, send)


async def _health(scope: Message, receive: Receive, send: Send) -> None:
    await answers.send_json(send, {"status": "ok"})


async def _nothing(scope: Message, receive: Receive, send: Send) -> None:
    raise Refused(404, "no such path; docs/gateway.md has all of them", "path", close=True)


def _headers(scope: Message, *but: bytes, length: bool = False) -> Headers:
    """A request's headers for an engine; `length`: with the body's, which stays as it is."""
    left_out = (*but, *PEER_HEADERS) if length else (*but, *PEER_HEADERS, b"content-length")
    return end_to_end(scope["headers"], left_out)
