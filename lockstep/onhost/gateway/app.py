"""The gateway as an ASGI application: its paths and their handlers."""

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
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from lockstep.onhost.core import config, errors
from lockstep.onhost.core.kind import Shape
from lockstep.onhost.gateway import swap, switch_client
from lockstep.onhost.gateway.access import KEY_HEADERS, Access, Caller, is_loopback
from lockstep.onhost.gateway.configuration import PEER_HEADERS, GatewayConfiguration
from lockstep.onhost.gateway.connections import alive
from lockstep.onhost.gateway.counts import Counts
from lockstep.onhost.gateway.forward import Content, EngineAnswer, Upstream, end_to_end
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.limits import Slots
from lockstep.onhost.gateway.models import AUTO, Models
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.peers import Peers, url
from lockstep.onhost.gateway.wire import answers, incoming, refusals
from lockstep.onhost.gateway.wire.answers import GatewayRefusal, Headers, Message, Receive, Send
from lockstep.onhost.gateway.wire.body import Body, ClientGone, too_large
from lockstep.onhost.gateway.wire.cross_origin import CrossOrigin
from lockstep.onhost.gateway.wire.form import Form
from lockstep.onhost.gateway.wire.incoming import Document

#: Paths that go to the model named in the body, if its engine serves them.
MODEL_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/score"),
    *("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank", "/rerank", "/v2/rerank"),
    *("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech"),
    *("/v1/images/generations", "/v1/images/edits", "/classify", "/v1/classify", "/pooling"),
    *("/tokenize", "/detokenize"),
)
_LIST = "/v1/models"
#: Response header that lists what was evened out in the request.
EVENED = b"x-lockstep-evened"
FREE = ("/", "/health", "/root.crt")  #: Paths that reveal no facts and answer without a key.
#: Seconds until a cold model is worth asking again: a quick switch.
COLD_RETRY_S = 60
_DOWN_RETRY_S = 5
_LOCKED_RETRY_S = 30
_LONGEST_SWITCH = 4096


@dataclass
class Application:
    """The ASGI application. `scope["state"]["listener"]` is the listener of the client's
    connection."""

    gateway: GatewayConfiguration
    host: config.HostConfig
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
        self._upstream, self._peer_upstream = Upstream(), Upstream(alive())
        self._most = self.gateway.limits.body_mib * 2**20
        self._router = Router(
            [
                Route("/", self.page.page),
                Route("/health", _health),
                Route("/root.crt", self._root),
                Route("/metrics", self._metrics),
                Route("/status", _Raw(self._status), methods=["GET"]),
                Route("/history", self.page.history),
                Route("/switch", _Raw(self._switch), methods=["POST"]),
                Route(_LIST, self._list),
                Route(f"{_LIST}/{{name:path}}", self._model),
                *(Route(path, _Raw(self._ask), methods=["POST"]) for path in MODEL_PATHS),
            ],
            redirect_slashes=False,
            default=_answer_nothing,
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        state, headers = scope["state"], scope["headers"]
        listener = state["listener"]
        try:
            if "\n" in scope["path"]:
                # Routers, also those of engines, ignore a newline at the end of a path.
                await _answer_nothing(scope, receive, send)
            if listener.kind == "model":
                method, path = scope["method"], scope["raw_path"]
                state["caller"] = self.access.caller_of_model(listener, method, path, headers)
                with self._place(scope, receive) as body:
                    await body.while_here(self._through(scope, body, send))
                return
            if (preflight_headers := self._pages.preflight(scope)) and listener.kind != "peers":
                await send(
                    {"type": "http.response.start", "status": 204, "headers": preflight_headers}
                )
                await send(answers.part(more=False))
                return
            send = self._pages.with_headers(scope, send)
            scope["path"] = plain_path(scope["path"])
            if scope["path"] not in FREE:
                state["caller"] = self.access.caller(listener, headers)
            # With "app" set, Starlette raises its own refusals as exceptions.
            scope["app"] = self
            await self._router(scope, receive, send)
        except HTTPException as fault:
            message = f"{scope['path']} does not take {scope['method']}"
            await self._refuse(
                scope, receive, send, GatewayRefusal(fault.status_code, message, "method")
            )
        except GatewayRefusal as error:
            await self._refuse(scope, receive, send, error)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The gateway is stopping: the connection is cut without an answer.
            return

    async def _refuse(
        self, scope: Message, receive: Receive, send: Send, refusal: GatewayRefusal
    ) -> None:
        self._count(scope, refusal)
        await answers.refuse(receive, send, answers.api_of(scope["path"]), refusal)

    def _count(self, scope: Message, refusal: GatewayRefusal) -> None:
        caller: Caller | None = scope["state"].get("caller")
        self.counts.refusal(caller.person.name if caller else None, refusal.reason)

    async def _status(self, scope: Message, receive: Receive, send: Send) -> None:
        caller, request = _caller(scope), Request(scope, receive)
        answer = await self.page.status(request, caller.person, alone=caller.hops > 0)
        is_stream = isinstance(answer, StreamingResponse)
        with self._slot(caller) if is_stream else contextlib.nullcontext():
            await answer(scope, receive, send)

    async def _root(self, _: Request) -> Response:
        try:
            text = await asyncio.to_thread(self.authority.read_bytes)
        except OSError:
            message = "this gateway's certificate is of no authority of its own"
            raise GatewayRefusal(404, message, "path") from None
        # Phones and browsers offer to install a certificate of this type.
        return answers.whole(text, "application/x-x509-ca-cert")

    async def _metrics(self, _: Request) -> Response:
        return answers.whole(self.counts.text(), prometheus_client.CONTENT_TYPE_LATEST)

    async def _list(self, request: Request) -> Response:
        data = await self._listing(_caller(request.scope))
        return answers.document({"object": "list", "data": data})

    async def _model(self, request: Request) -> Response:
        name, caller = request.path_params["name"], _caller(request.scope)
        for entry in await self._listing(caller):
            if entry["id"] == name:
                return answers.document(entry)
        # Names that the engine or the hub use for a model are not listed.
        if model := await self._models.model(name):
            return answers.document(self._models.entry(name, model, model))
        raise await self._unknown(name, caller)

    async def _listing(self, caller: Caller) -> list[dict[str, Any]]:
        own = await self._models.listing()
        # The other gateway asks each of its peers itself.
        return own if caller.hops else await self.peers.listing(own)

    async def _switch(self, scope: Message, receive: Receive, send: Send) -> None:
        person = _caller(scope).person
        body = Body(receive)
        wish = Document(await body.whole(_LONGEST_SWITCH)).read(incoming.SwitchRequest)
        if person.role != "operate":
            message = (
                f"{person.name} may use models, not switch them: that takes a key of role operate"
            )
            raise GatewayRefusal(403, message, "role")
        if wish.model not in (*self.host.models, "none", "cancel"):
            known_models = ", ".join(self.host.models)
            message = f"no model {wish.model!r} here; models: {known_models}, none, cancel"
            raise GatewayRefusal(404, message, "model")
        await body.while_here(self._switching(wish.model, person.name, send))

    async def _switching(self, model: str, person: str, send: Send) -> None:
        answer = EngineAnswer(send, "openai", self.gateway.keepalive_s)
        lines = switch_client.switch(model, person)
        while line := await answer.patiently(anext(lines, None)):
            if line.get("code") == errors.EXIT_LOCKED and not answer.has_started:
                raise GatewayRefusal(409, line["said"], "switching", _LOCKED_RETRY_S)
            self.hot.forget()
            await answer.event(line)
        await answer.end()

    async def _ask(self, scope: Message, receive: Receive, send: Send) -> None:
        with self._place(scope, receive) as body:
            await body.while_here(self._to_model(scope, body, send))

    async def _to_model(self, scope: Message, body: Body, send: Send) -> None:
        path, caller = scope["path"], _caller(scope)
        # Send the path as documented, so that the engine cannot read it differently.
        scope["raw_path"] = path.encode()
        if any(name == b"content-encoding" for name, _ in scope["headers"]):
            raise GatewayRefusal(
                415, "a compressed body cannot be read here", "encoding", close=True
            )
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        content = await body.whole(self._most)
        document: Document | Form
        document = Form(kind, content) if _is_form(kind) else Document(content)
        model_request = document.read(incoming.AskedOfModel)
        refusals.check(model_request)
        api, streams = answers.api_of(path), bool(model_request.stream)
        answer = EngineAnswer(send, api, self.gateway.keepalive_s if streams else None)
        try:
            name = model_request.model
            model = await self._models.model(name)
            serving = await self.hot.serving(model) if model else None
            if (
                serving is None
                # Do not forward a request that was already forwarded.
                and not caller.hops
                and await self._at_peers(answer, scope, document, name, only=model is None)
            ):
                return
            if model is None:
                raise await self._unknown(name, caller)
            async with contextlib.AsyncExitStack() as stack:
                wanted_model = AUTO if name == AUTO else model
                turn = self.swaps.until_hot(wanted_model, caller.person.name)
                await answer.patiently(stack.enter_async_context(turn))
                if name == AUTO:
                    # `auto` may be another model after the wait for a switch.
                    model = await self._models.model(AUTO) or model
                serving = self.hot.serves(model)
                if serving is None:
                    raise GatewayRefusal(503, f"{model} has just ended", "down", _DOWN_RETRY_S)
                shapes = self.gateway.model(serving.name).evens
                content, evened_shapes = document.rewritten(serving.served_name, path, shapes)
                self._note_evening(answer, serving.name, evened_shapes)
                # Keep-alive comments cannot be inserted into a compressed stream.
                but = (b"accept-encoding",) if streams else ()
                headers = _headers(scope, *KEY_HEADERS, *but)
                engine = self.host.models[serving.name].engine
                message = (
                    f"{serving.name}, which is hot, does not serve {path}: {engine} answers 404"
                )
                answer.no_such_path = GatewayRefusal(404, message, "path")
                await self._to_engine(answer, scope, serving, headers, content)
        except swap.TurnRefusal as error:
            message = f"{model} is cold; {error.words}. {self._who_may(model)}"
            await self._refuse_in_stream(
                answer, scope, GatewayRefusal(503, message, "cold", error.retry_after_s)
            )
        except GatewayRefusal as error:
            await self._refuse_in_stream(answer, scope, error)

    async def _refuse_in_stream(
        self, answer: EngineAnswer, scope: Message, refusal: GatewayRefusal
    ) -> None:
        """Refuse in a stream that has begun; all other refusals are sent by `__call__`."""
        if not answer.has_started:
            raise refusal
        self._count(scope, refusal)
        await answer.break_off(refusal)

    async def _to_engine(
        self,
        answer: EngineAnswer,
        scope: Message,
        serving: config.Model,
        headers: Headers,
        content: Content,
    ) -> None:
        """Forward to an engine; nothing is awaited between the check of its unit and this."""
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
                end_time = time.monotonic()
                counts.tokens(person, name, tail, end_time - began, end_time - first)
            except GatewayRefusal:
                self.hot.forget()
                raise
            finally:
                counts.running(name, self.hot.running(name) - 1)

    async def _at_peers(
        self, answer: EngineAnswer, scope: Message, document: Document | Form, name: str, only: bool
    ) -> bool:
        """Let another gateway answer if one has the model hot, and tell whether one did.

        With `only`, this host has no such model: a cold model there counts too, and no answer from
        any peer is an error.
        """
        refusal, person = None, _caller(scope).person
        headers = _headers(scope, *KEY_HEADERS) + self.peers.headers(person)
        for peer in await self.peers.holders(name, cold=only):
            self.counts.request(person.name, f"at {peer.name}")
            asking = self._peer_upstream.ask(scope, url(peer), headers, document.body)
            try:
                response = await answer.patiently(asking)
            except GatewayRefusal as fault:
                self.peers.mark_failed(peer)
                refusal = fault
            else:
                await answer.pass_on(response)
                return True
        if refusal and only:
            raise _peer_gone(peer.name) from refusal
        return False

    async def _through(self, scope: Message, body: Body, send: Send) -> None:
        listener = scope["state"]["listener"]
        answer = EngineAnswer(send, answers.api_of(scope["path"]), None)
        serving = await self.hot.serving(listener.models[0])
        if serving is None:
            raise GatewayRefusal(
                503, f"{listener.models[0]} is loading or down", "down", _DOWN_RETRY_S
            )
        present_names = {name for name, _ in scope["headers"]}
        # A key for this port ends here; a key for the engine passes.
        dropped_headers = () if is_loopback(listener.address) else KEY_HEADERS
        headers = _headers(scope, *dropped_headers, length=True)
        content: Content = None
        reads = scope["method"] == "POST" and scope["path"] in MODEL_PATHS
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        # Parse it whatever Content-Encoding says: engines without decoders read the bytes as they
        # are.
        if reads and not _is_form(kind):
            whole = await body.whole(self._most)
            content, evened_shapes = self._checked_body(whole, scope["path"], serving.name)
            self._note_evening(answer, serving.name, evened_shapes)
            headers = _headers(scope, *dropped_headers)
        elif present_names & {b"content-length", b"transfer-encoding"}:
            content = body.chunks()
        else:
            body.nothing_expected()
        await self._to_engine(answer, scope, serving, headers, content)

    def _checked_body(self, body: bytes, path: str, model: str) -> tuple[bytes, list[Shape]]:
        """Check a body for a model's own port.

        Anything but a JSON object is left to the engine.
        """
        try:
            document = Document(body)
        except GatewayRefusal as refusal:
            if refusal.reason == incoming.TOO_MUCH:
                # An engine that can parse it would get a body that nobody checked.
                raise
            return body, []
        refusals.check(document.read(incoming.ModelFields))
        content, evened_shapes = document.rewritten(None, path, self.gateway.model(model).evens)
        return content if evened_shapes else body, evened_shapes

    def _note_evening(self, answer: EngineAnswer, model: str, shapes: list[Shape]) -> None:
        """Count what was evened out of a request, and tell its client."""
        if shapes:
            self.counts.evening(model, shapes)
            answer.headers = [(EVENED, ",".join(shapes).encode())]

    @contextlib.contextmanager
    def _place(self, scope: Message, receive: Receive) -> Iterator[Body]:
        """Hold a slot among the running requests, and yield the body. Refuse if all are taken."""
        caller = _caller(scope)
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        own = scope["state"]["listener"].kind != "model"
        if own and lengths and lengths[0].isdigit() and int(lengths[0]) > self._most:
            raise too_large(self._most)
        with self._slot(caller), self._slots.body() as take:
            yield Body(receive, take)

    def _slot(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return self._slots.hold_slot(caller.person.name if caller.is_limited else None)

    def _who_may(self, model: str | None) -> str:
        return (
            f"A key of role operate may switch on {self.gateway.host} (its page, POST /switch), "
            f"and so may a login there: switch.sh {model or 'MODEL'}"
        )

    async def _unknown(self, name: str, caller: Caller) -> GatewayRefusal:
        known_models = {
            model["id"]: model["lockstep"]["host"] for model in await self._listing(caller)
        }
        if name == AUTO:
            message = f"no model is hot on {self.gateway.host}. {self._who_may(None)}"
            return GatewayRefusal(503, message, "cold", COLD_RETRY_S)
        if name in known_models:
            return _peer_gone(known_models[name])
        message = f"no model {name[:80]!r} here; models: {', '.join(known_models) or 'none'}"
        return GatewayRefusal(404, message, "model")


def plain_path(path: str) -> str:
    """Return the intended path: without superfluous slashes, /v1 exactly once.

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


def _peer_gone(peer: str) -> GatewayRefusal:
    message = f"the gateway of {peer}, which has the model, does not answer"
    return GatewayRefusal(502, message, "peer", _DOWN_RETRY_S)


@dataclass
class _Raw:
    """An endpoint that Starlette calls as ASGI, without a request object."""

    endpoint: Callable[[Message, Receive, Send], Awaitable[None]]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self.endpoint(scope, receive, send)


def _caller(scope: Message) -> Caller:
    """Return the caller that `Application.__call__` has authenticated."""
    caller: Caller = scope["state"]["caller"]
    return caller


async def _health(_: Request) -> Response:
    return answers.document({"status": "ok"})


async def _answer_nothing(scope: Message, receive: Receive, send: Send) -> None:
    raise GatewayRefusal(
        404, "no such path; `lockstep help gateway` has all of them", "path", close=True
    )


def _headers(scope: Message, *but: bytes, length: bool = False) -> Headers:
    """Return a request's headers for an engine; with `length`, keep those of an unchanged body."""
    left_out = (*but, *PEER_HEADERS) if length else (*but, *PEER_HEADERS, b"content-length")
    return end_to_end(scope["headers"], left_out)
