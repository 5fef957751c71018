"""The gateway as an ASGI application: its paths, and what each one does."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prometheus_client
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from lockstep.onhost.core import config, errors
from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway import ask, swap
from lockstep.onhost.gateway.access import KEY_HEADERS, Access, Caller, is_loopback
from lockstep.onhost.gateway.configuration import PEER_HEADERS, Gateway
from lockstep.onhost.gateway.connections import alive
from lockstep.onhost.gateway.counts import Counts
from lockstep.onhost.gateway.forward import Answer, Content, Upstream, end_to_end
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.limits import Slots
from lockstep.onhost.gateway.models import AUTO, Models
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.peers import Peers, url
from lockstep.onhost.gateway.wire import answers, incoming, refusals
from lockstep.onhost.gateway.wire.answers import Headers, Message, Receive, Refused, Send
from lockstep.onhost.gateway.wire.body import Body, Gone, too_large
from lockstep.onhost.gateway.wire.cross_origin import CrossOrigin
from lockstep.onhost.gateway.wire.form import Form
from lockstep.onhost.gateway.wire.incoming import Document

#: Paths that go to the model that the body names, where its engine serves them.
MODEL_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score"),
    *("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank", "/rerank", "/v2/rerank"),
    *("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech"),
    *("/v1/images/generations", "/v1/images/edits", "/classify", "/v1/classify", "/pooling"),
    *("/tokenize", "/detokenize"),
)
_LIST = "/v1/models"
#: Header of an answer: what was evened out of its request.
EVENED = b"x-lockstep-evened"
FREE = ("/", "/health", "/root.crt")  #: Paths without any fact, which answer without a key.
#: When a cold target is worth asking again, seconds: a quick switch.
COLD_RETRY_S = 60
_DOWN_RETRY_S = 5
_LOCKED_RETRY_S = 30
_LONGEST_SWITCH = 4096


@dataclass
class Application:
    """The ASGI application. `scope["state"]["door"]` is the door that a client came to."""

    gateway: Gateway
    host: config.Host
    hot: Hot
    access: Access
    peers: Peers
    counts: Counts
    swaps: swap.Swaps
    page: Page
    authority: Path

    def __post_init__(self) -> None:
        self._models = Models(self.gateway, self.host, self.hot)
        self._slots = Slots(self.gateway.limits)
        self._pages = CrossOrigin(self.gateway.origins)
        self._upstream, self._twins = Upstream(), Upstream(alive())
        self._most = self.gateway.limits.body_mib * 2**20
        self._router = Router(
            [
                Route("/", self.page.page),
                Route("/health", _health),
                Route("/root.crt", self._root),
                Route("/metrics", self._metrics),
                Route("/status", self._status),
                Route("/history", self.page.history),
                Route("/switch", _Raw(self._switch), methods=["POST"]),
                Route(_LIST, self._list),
                Route(f"{_LIST}/{{name:path}}", self._model),
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
            if "\n" in scope["path"]:
                # Routers, engines' too, take a path with one at its end for the path without.
                await _nothing(scope, receive, send)
            if door.kind == "target":
                method, path = scope["method"], scope["raw_path"]
                state["caller"] = self.access.caller_of_target(door, method, path, headers)
                with self._place(scope, receive) as body:
                    await body.while_here(self._through(scope, body, send))
                return
            if (allowed := self._pages.preflight(scope)) and door.kind != "peers":
                await send({"type": "http.response.start", "status": 204, "headers": allowed})
                await send(answers.part(more=False))
                return
            send = self._pages.with_headers(scope, send)
            scope["path"] = plain_path(scope["path"])
            if scope["path"] not in FREE:
                state["caller"] = self.access.caller(door, headers)
            # Starlette gives its own refusals back as exceptions then.
            scope["app"] = self
            await self._router(scope, receive, send)
        except HTTPException as fault:
            said = f"{scope['path']} does not take {scope['method']}"
            await self._refuse(scope, receive, send, Refused(fault.status_code, said, "method"))
        except Refused as refused:
            await self._refuse(scope, receive, send, refused)
        except Gone:
            return
        except asyncio.CancelledError:
            # The gateway is being stopped: the connection is cut, and nothing is said about it.
            return

    async def _refuse(self, scope: Message, receive: Receive, send: Send, refused: Refused) -> None:
        self._count(scope, refused)
        await answers.refuse(receive, send, answers.api_of(scope["path"]), refused)

    def _count(self, scope: Message, refused: Refused) -> None:
        caller: Caller | None = scope["state"].get("caller")
        self.counts.refusal(caller.person.name if caller else None, refused.reason)

    async def _status(self, request: Request) -> Response:
        caller = _caller(request.scope)
        return await self.page.status(request, caller.person, alone=caller.hops > 0)

    async def _root(self, _: Request) -> Response:
        try:
            text = await asyncio.to_thread(self.authority.read_bytes)
        except OSError:
            said = "this gateway's certificate is of no authority of its own"
            raise Refused(404, said, "path") from None
        # Phones and browsers offer to install it.
        return answers.whole(text, "application/x-x509-ca-cert")

    async def _metrics(self, _: Request) -> Response:
        return answers.whole(self.counts.text(), prometheus_client.CONTENT_TYPE_LATEST)

    async def _list(self, request: Request) -> Response:
        data = await self._listing(_caller(request.scope))
        return answers.document({"object": "list", "data": data})

    async def _model(self, request: Request) -> Response:
        name, caller = request.path_params["name"], _caller(request.scope)
        for model in await self._listing(caller):
            if model["id"] == name:
                return answers.document(model)
        # What its engine or the hub calls it is not listed.
        if target := await self._models.target(name):
            return answers.document(self._models.entry(name, target, target))
        raise await self._unknown(name, caller)

    async def _listing(self, caller: Caller) -> list[dict[str, Any]]:
        own = await self._models.listing()
        # Another gateway asks each one itself.
        return own if caller.hops else await self.peers.listing(own)

    async def _switch(self, scope: Message, receive: Receive, send: Send) -> None:
        person = _caller(scope).person
        body = Body(receive)
        wish = Document(await body.whole(_LONGEST_SWITCH)).read(incoming.Switch)
        if person.role != "operate":
            said = (
                f"{person.name} may use models, not switch them: that takes a key of role operate"
            )
            raise Refused(403, said, "role")
        if wish.target not in (*self.host.targets, "none", "cancel"):
            known = ", ".join(self.host.targets)
            said = f"no target {wish.target!r} here; targets: {known}, none, cancel"
            raise Refused(404, said, "model")
        await body.while_here(self._switching(wish.target, person.name, send))

    async def _switching(self, target: str, person: str, send: Send) -> None:
        answer = Answer(send, "openai", self.gateway.keepalive_s)
        lines = ask.switch(target, person)
        while line := await answer.patiently(anext(lines, None)):
            if line.get("code") == errors.EXIT_LOCKED and not answer.started:
                raise Refused(409, line["said"], "switching", _LOCKED_RETRY_S)
            self.hot.changed()
            await answer.event(line)
        await answer.end()

    async def _ask(self, scope: Message, receive: Receive, send: Send) -> None:
        with self._place(scope, receive) as body:
            await body.while_here(self._to_model(scope, body, send))

    async def _to_model(self, scope: Message, body: Body, send: Send) -> None:
        path, caller = scope["path"], _caller(scope)
        # The path as it is documented: an engine must not read it in another way.
        scope["raw_path"] = path.encode()
        if any(name == b"content-encoding" for name, _ in scope["headers"]):
            raise Refused(415, "a compressed body cannot be read here", "encoding", close=True)
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        content = await body.whole(self._most)
        document: Document | Form
        document = Form(kind, content) if _is_form(kind) else Document(content)
        asked = document.read(incoming.AskedOfModel)
        refusals.check(asked)
        api, streams = answers.api_of(path), bool(asked.stream)
        answer = Answer(send, api, self.gateway.keepalive_s if streams else None)
        try:
            name = asked.model
            target = await self._models.target(name)
            serving = await self.hot.serving(target) if target else None
            if (
                serving is None
                # What came from another gateway goes to no third one.
                and not caller.hops
                and await self._at_peers(answer, scope, document, name, only=target is None)
            ):
                return
            if target is None:
                raise await self._unknown(name, caller)
            async with contextlib.AsyncExitStack() as stack:
                wanted = AUTO if name == AUTO else target
                turn = self.swaps.until_hot(wanted, caller.person.name)
                await answer.patiently(stack.enter_async_context(turn))
                if name == AUTO:
                    # Another one than before, where it waited for a switch.
                    target = await self._models.target(AUTO) or target
                serving = self.hot.serves(target)
                if serving is None:
                    raise Refused(503, f"{target} has just ended", "down", _DOWN_RETRY_S)
                shapes = self.gateway.model(serving.name).evens
                content, there = document.rewritten(serving.model, path, shapes)
                self._note_evening(answer, serving.name, there)
                # Comments cannot be put into a stream that is compressed.
                but = (b"accept-encoding",) if streams else ()
                headers = _headers(scope, *KEY_HEADERS, *but)
                engine = self.host.targets[serving.name].engine
                said = f"{serving.name}, which is hot, does not serve {path}: {engine} answers 404"
                answer.no_such_path = Refused(404, said, "path")
                await self._to_engine(answer, scope, serving, headers, content)
        except swap.Refused as refused:
            said = f"{target} is cold; {refused.words}. {self._who_may(target)}"
            await self._told(answer, scope, Refused(503, said, "cold", refused.retry_after_s))
        except Refused as refused:
            await self._told(answer, scope, refused)

    async def _told(self, answer: Answer, scope: Message, refused: Refused) -> None:
        """Refuse in a stream that has begun; any other answer is `__call__`'s."""
        if not answer.started:
            raise refused
        self._count(scope, refused)
        await answer.break_off(refused)

    async def _to_engine(
        self,
        answer: Answer,
        scope: Message,
        serving: config.Target,
        headers: Headers,
        content: Content,
    ) -> None:
        """Ask an engine; nothing is waited for between the look at its unit and this."""
        counts, name, person = self.counts, serving.name, _caller(scope).person.name
        began = first = time.monotonic()

        def begins() -> None:
            nonlocal first
            first = time.monotonic()
            counts.first_byte(name, first - began)

        with self.hot.using(name), counts.asking(person):
            counts.request(person, name)
            counts.running(name, self.hot.running(name))
            answer.first_byte = begins
            try:
                assert serving.engine_url is not None
                asking = self._upstream.ask(scope, serving.engine_url, headers, content)
                tail = await answer.pass_on(await answer.patiently(asking))
                ended = time.monotonic()
                counts.tokens(person, name, tail, ended - began, ended - first)
            except Refused:
                self.hot.changed()
                raise
            finally:
                counts.running(name, self.hot.running(name) - 1)

    async def _at_peers(
        self, answer: Answer, scope: Message, document: Document | Form, name: str, only: bool
    ) -> bool:
        """Have another gateway answer, where one has the model hot; whether one did.

        `only`: this host has no such model. A cold one there counts then, and that nobody there
        answers is an error.
        """
        refused, person = None, _caller(scope).person
        headers = _headers(scope, *KEY_HEADERS) + self.peers.headers(person)
        for peer in await self.peers.holders(name, cold=only):
            self.counts.request(person.name, f"at {peer.name}")
            asking = self._twins.ask(scope, url(peer), headers, document.body)
            try:
                response = await answer.patiently(asking)
            except Refused as fault:
                self.peers.failed(peer)
                refused = fault
            else:
                await answer.pass_on(response)
                return True
        if refused and only:
            raise _gone(peer.name) from refused
        return False

    async def _through(self, scope: Message, body: Body, send: Send) -> None:
        door = scope["state"]["door"]
        answer = Answer(send, answers.api_of(scope["path"]), None)
        serving = await self.hot.serving(door.targets[0])
        if serving is None:
            raise Refused(503, f"{door.targets[0]} is loading or down", "down", _DOWN_RETRY_S)
        named = {name for name, _ in scope["headers"]}
        # A key that the port asks for ends here; one for the engine passes.
        dropped = () if is_loopback(door.address) else KEY_HEADERS
        headers = _headers(scope, *dropped, length=True)
        content: Content = None
        reads = scope["method"] == "POST" and scope["path"] in MODEL_PATHS
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        # Whatever encoding it says to have: engines that know none read it as it is.
        if reads and not _is_form(kind):
            whole = await body.whole(self._most)
            content, there = self._judged(whole, scope["path"], serving.name)
            self._note_evening(answer, serving.name, there)
            headers = _headers(scope, *dropped)
        elif named & {b"content-length", b"transfer-encoding"}:
            content = body.chunks()
        else:
            body.nothing_expected()
        await self._to_engine(answer, scope, serving, headers, content)

    def _judged(self, body: bytes, path: str, target: str) -> tuple[bytes, list[Shape]]:
        """A body for a target's own port: what is no JSON object is the engine's to judge."""
        try:
            document = Document(body)
        except Refused as refused:
            if refused.reason == incoming.TOO_MUCH:
                # An engine that can read it would get what nobody has judged.
                raise
            return body, []
        refusals.check(document.read(incoming.Asked))
        content, there = document.rewritten(None, path, self.gateway.model(target).evens)
        return content if there else body, there

    def _note_evening(self, answer: Answer, model: str, shapes: list[Shape]) -> None:
        """Count what was evened out of a request, and say it to its client."""
        if shapes:
            self.counts.evening(model, shapes)
            answer.headers = [(EVENED, ",".join(shapes).encode())]

    @contextlib.contextmanager
    def _place(self, scope: Message, receive: Receive) -> Iterator[Body]:
        """A place among the requests under way, and the request's body. Refused: there is none."""
        caller = _caller(scope)
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
            f"A key of role operate may switch on {self.gateway.host} (its page, POST /switch), "
            f"and so may a login there: switch.sh {target or 'TARGET'}"
        )

    async def _unknown(self, name: str, caller: Caller) -> Refused:
        known = {model["id"]: model["lockstep"]["host"] for model in await self._listing(caller)}
        if name == AUTO:
            said = f"no model is hot on {self.gateway.host}. {self._who_may(None)}"
            return Refused(503, said, "cold", COLD_RETRY_S)
        if name in known:
            return _gone(known[name])
        said = f"no model {name[:80]!r} here; models: {', '.join(known) or 'none'}"
        return Refused(404, said, "model")


def plain_path(path: str) -> str:
    """The path that one means: with slashes too many, without /v1, or with two of it.

    Base URLs are written with and without /v1, and with a slash at the end; llama.cpp serves chats
    without /v1 as well.
    """
    path = re.sub("/{2,}", "/", path).removesuffix("/") or "/"
    path = re.sub("^(?:/v1)+(?=/v1/)", "", path)
    return (
        f"/v1{path}" if f"/v1{path}" in (_LIST, *MODEL_PATHS) and path not in MODEL_PATHS else path
    )


def _is_form(content_type: str) -> bool:
    return content_type.lower().startswith("multipart/form-data")


def _gone(twin: str) -> Refused:
    said = f"the gateway of {twin}, which has the model, does not answer"
    return Refused(502, said, "twin", _DOWN_RETRY_S)


@dataclass
class _Raw:
    """An endpoint that Starlette calls as ASGI, without a request object of its own."""

    endpoint: Callable[[Message, Receive, Send], Awaitable[None]]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self.endpoint(scope, receive, send)


def _caller(scope: Message) -> Caller:
    """Who asks: `Application.__call__` has found out."""
    caller: Caller = scope["state"]["caller"]
    return caller


async def _health(_: Request) -> Response:
    return answers.document({"status": "ok"})


async def _nothing(scope: Message, receive: Receive, send: Send) -> None:
    raise Refused(404, "no such path; `lockstep help gateway` has all of them", "path", close=True)


def _headers(scope: Message, *but: bytes, length: bool = False) -> Headers:
    """A request's headers for an engine; `length`: with the body's, which stays as it is."""
    left_out = (*but, *PEER_HEADERS) if length else (*but, *PEER_HEADERS, b"content-length")
    return end_to_end(scope["headers"], left_out)
