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
from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape
from lockstep.onhost.gateway import switch_client, switch_queue
from lockstep.onhost.gateway.concurrency_limits import Slots
from lockstep.onhost.gateway.configuration import PEER_HEADERS, GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.model_names import AUTO, Models
from lockstep.onhost.gateway.outgoing_connections import http_transport
from lockstep.onhost.gateway.page import Page
from lockstep.onhost.gateway.peer_gateways import Peers, peer_url
from lockstep.onhost.gateway.request_authentication import KEY_HEADERS, Access, Caller, is_loopback
from lockstep.onhost.gateway.request_counters import Counts
from lockstep.onhost.gateway.request_forwarding import (
    Content,
    EngineAnswer,
    Upstream,
    end_to_end_headers,
)
from lockstep.onhost.gateway.wire import engine_crash_limits, gateway_answers, request_fields
from lockstep.onhost.gateway.wire.cross_origin import CrossOrigin
from lockstep.onhost.gateway.wire.gateway_answers import (
    GatewayRefusal,
    Headers,
    Message,
    Receive,
    Send,
)
from lockstep.onhost.gateway.wire.multipart_form import MultipartForm
from lockstep.onhost.gateway.wire.request_body import Body, ClientGone, too_large_refusal
from lockstep.onhost.gateway.wire.request_fields import JsonBody

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
    hot: HotModel
    access: Access
    peers: Peers
    counts: Counts
    swaps: switch_queue.SwitchQueue
    page: Page
    authority: Path

    def __post_init__(self) -> None:
        self._models = Models(self.gateway, self.host, self.hot)
        self._slots = Slots(self.gateway.limits)
        self._pages = CrossOrigin(self.gateway.origins)
        self._upstream = Upstream(http_transport())
        self._peer_upstream = Upstream(self.peers.transport)
        self._most = self.gateway.limits.body_mib * 2**20
        self._router = Router(
            [
                Route("/", self.page.page),
                Route("/health", _health_response),
                Route("/root.crt", self._root_certificate),
                Route("/metrics", self._metrics_response),
                Route("/status", _Raw(self._send_status), methods=["GET"]),
                Route("/history", self.page.history),
                Route("/switch", _Raw(self._handle_switch_request), methods=["POST"]),
                Route(_LIST, self._list_models),
                Route(f"{_LIST}/{{name:path}}", self._describe_model),
                *(
                    Route(path, _Raw(self._handle_model_request), methods=["POST"])
                    for path in MODEL_PATHS
                ),
            ],
            redirect_slashes=False,
            default=_refuse_unknown_path,
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
                await _refuse_unknown_path(scope, receive, send)
            if listener.kind == "model":
                method, path = scope["method"], scope["raw_path"]
                state["caller"] = self.access.caller_at_model_port(listener, method, path, headers)
                with self._hold_slot_and_body(scope, receive) as body:
                    await body.run_while_client_stays(
                        self._forward_at_model_port(scope, body, send)
                    )
                return
            if (
                preflight_headers := self._pages.preflight_headers(scope)
            ) and listener.kind != "peers":
                await send(
                    {"type": "http.response.start", "status": 204, "headers": preflight_headers}
                )
                await send(gateway_answers.body_part(more=False))
                return
            send = self._pages.send_with_headers(scope, send)
            scope["path"] = plain_path(scope["path"])
            if scope["path"] not in FREE:
                state["caller"] = self.access.caller(listener, headers)
            # With "app" set, Starlette raises its own refusals as exceptions.
            scope["app"] = self
            await self._router(scope, receive, send)
        except HTTPException as fault:
            message = f"{scope['path']} does not take {scope['method']}"
            await self._send_refusal(
                scope, receive, send, GatewayRefusal(fault.status_code, message, "method")
            )
        except GatewayRefusal as error:
            await self._send_refusal(scope, receive, send, error)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The gateway is stopping: the connection is cut without an answer.
            return

    async def _send_refusal(
        self, scope: Message, receive: Receive, send: Send, refusal: GatewayRefusal
    ) -> None:
        self._count_refusal(scope, refusal)
        await gateway_answers.send_error(
            receive, send, gateway_answers.api_of(scope["path"]), refusal
        )

    def _count_refusal(self, scope: Message, refusal: GatewayRefusal) -> None:
        caller: Caller | None = scope["state"].get("caller")
        self.counts.count_refusal(caller.person.name if caller else None, refusal.reason)

    async def _send_status(self, scope: Message, receive: Receive, send: Send) -> None:
        caller, request = _caller(scope), Request(scope, receive)
        answer = await self.page.status(request, caller.person, alone=caller.hops > 0)
        is_stream = isinstance(answer, StreamingResponse)
        with self._hold_caller_slot(caller) if is_stream else contextlib.nullcontext():
            await answer(scope, receive, send)

    async def _root_certificate(self, _: Request) -> Response:
        try:
            text = await asyncio.to_thread(self.authority.read_bytes)
        except OSError:
            message = "this gateway's certificate is of no authority of its own"
            raise GatewayRefusal(404, message, "path") from None
        # Phones and browsers offer to install a certificate of this type.
        return gateway_answers.whole_response(text, "application/x-x509-ca-cert")

    async def _metrics_response(self, _: Request) -> Response:
        return gateway_answers.whole_response(
            self.counts.prometheus_text(), prometheus_client.CONTENT_TYPE_LATEST
        )

    async def _list_models(self, request: Request) -> Response:
        data = await self._models_with_peers(_caller(request.scope))
        return gateway_answers.json_response({"object": "list", "data": data})

    async def _describe_model(self, request: Request) -> Response:
        name, caller = request.path_params["name"], _caller(request.scope)
        for entry in await self._models_with_peers(caller):
            if entry["id"] == name:
                return gateway_answers.json_response(entry)
        # Names that the engine or the hub use for a model are not listed.
        if model := await self._models.model(name):
            return gateway_answers.json_response(self._models.entry(name, model, model))
        raise await self._unknown_model_refusal(name, caller)

    async def _models_with_peers(self, caller: Caller) -> list[dict[str, Any]]:
        own = await self._models.listing()
        # The other gateway asks each of its peers itself.
        return own if caller.hops else await self.peers.models_with_peers(own)

    async def _handle_switch_request(self, scope: Message, receive: Receive, send: Send) -> None:
        person = _caller(scope).person
        body = Body(receive)
        wish = JsonBody(await body.read_whole(_LONGEST_SWITCH)).validate_fields(
            request_fields.SwitchRequest
        )
        if person.role != "operate":
            message = (
                f"{person.name} may use models, not switch them: that takes a key of role operate"
            )
            raise GatewayRefusal(403, message, "role")
        if wish.model not in (*self.host.models, "none", "cancel"):
            known_models = ", ".join(self.host.models)
            message = f"no model {wish.model!r} here; models: {known_models}, none, cancel"
            raise GatewayRefusal(404, message, "model")
        await body.run_while_client_stays(
            self._stream_switch_progress(wish.model, person.name, send)
        )

    async def _stream_switch_progress(self, model: str, person: str, send: Send) -> None:
        answer = EngineAnswer(send, "openai", self.gateway.keepalive_s)
        lines = switch_client.request_switch(model, person)
        while line := await answer.await_with_keepalive(anext(lines, None)):
            if line.get("code") == errors.EXIT_LOCKED and not answer.has_started:
                raise GatewayRefusal(409, line["said"], "switching", _LOCKED_RETRY_S)
            self.hot.discard_known_state()
            await answer.send_event(line)
        await answer.end_event_stream()

    async def _handle_model_request(self, scope: Message, receive: Receive, send: Send) -> None:
        with self._hold_slot_and_body(scope, receive) as body:
            await body.run_while_client_stays(self._answer_by_model(scope, body, send))

    async def _answer_by_model(self, scope: Message, body: Body, send: Send) -> None:
        path, caller = scope["path"], _caller(scope)
        # Send the path as documented, so that the engine cannot read it differently.
        scope["raw_path"] = path.encode()
        if any(name == b"content-encoding" for name, _ in scope["headers"]):
            raise GatewayRefusal(
                415, "a compressed body cannot be read here", "encoding", close=True
            )
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        content = await body.read_whole(self._most)
        document: JsonBody | MultipartForm
        document = MultipartForm(kind, content) if _is_multipart_form(kind) else JsonBody(content)
        model_request = document.validate_fields(request_fields.ModelRequest)
        engine_crash_limits.refuse_dangerous_fields(model_request)
        api, streams = gateway_answers.api_of(path), bool(model_request.stream)
        answer = EngineAnswer(send, api, self.gateway.keepalive_s if streams else None)
        try:
            name = model_request.model
            model = await self._models.model(name)
            serving = await self.hot.query_serving_variant(model) if model else None
            if (
                serving is None
                # Do not forward a request that was already forwarded.
                and not caller.hops
                and await self._forward_to_peers(answer, scope, document, name, only=model is None)
            ):
                return
            if model is None:
                raise await self._unknown_model_refusal(name, caller)
            async with contextlib.AsyncExitStack() as stack:
                wanted_model = AUTO if name == AUTO else model
                turn = self.swaps.hold_hot_model(wanted_model, caller.person.name)
                await answer.await_with_keepalive(stack.enter_async_context(turn))
                if name == AUTO:
                    # `auto` may be another model after the wait for a switch.
                    model = await self._models.model(AUTO) or model
                serving = self.hot.serving_variant(model)
                if serving is None:
                    raise GatewayRefusal(503, f"{model} has just ended", "down", _DOWN_RETRY_S)
                content, evened_shapes = document.body_for_model(
                    serving.served_name, path, serving.evens
                )
                self._report_rewritten_shapes(answer, serving.name, evened_shapes)
                # Keep-alive comments cannot be inserted into a compressed stream.
                but = (b"accept-encoding",) if streams else ()
                headers = _headers_for_engine(scope, *KEY_HEADERS, *but)
                message = (
                    f"{serving.name}, which is hot, does not serve {path}: {serving.engine} "
                    "answers 404"
                )
                answer.no_such_path = GatewayRefusal(404, message, "path")
                await self._forward_to_engine(answer, scope, serving, headers, content)
        except switch_queue.TurnRefusal as error:
            message = f"{model} is cold; {error.words}. {self._who_may_switch_text(model)}"
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
        self._count_refusal(scope, refusal)
        await answer.end_with_error_event(refusal)

    async def _forward_to_engine(
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
            counts.record_first_byte_time(name, first - began)

        with self.hot.count_running_request(name), counts.mark_person_active(person):
            counts.count_request(person, name)
            counts.set_running_requests(name, self.hot.running_requests(name))
            answer.first_byte = begins
            try:
                assert serving.engine_url is not None
                asking = self._upstream.send_request(scope, serving.engine_url, headers, content)
                tail = await answer.forward_answer(await answer.await_with_keepalive(asking))
                end_time = time.monotonic()
                counts.count_tokens(person, name, tail, end_time - began, end_time - first)
            except GatewayRefusal:
                self.hot.discard_known_state()
                raise
            finally:
                counts.set_running_requests(name, self.hot.running_requests(name) - 1)

    async def _forward_to_peers(
        self,
        answer: EngineAnswer,
        scope: Message,
        document: JsonBody | MultipartForm,
        name: str,
        only: bool,
    ) -> bool:
        """Let another gateway answer if one has the model hot, and tell whether one did.

        With `only`, this host has no such model: a cold model there counts too, and no answer from
        any peer is an error.
        """
        refusal, person = None, _caller(scope).person
        headers = _headers_for_engine(scope, *KEY_HEADERS) + self.peers.forwarding_headers(person)
        for peer in await self.peers.gateways_serving(name, cold=only):
            self.counts.count_request(person.name, f"at {peer.name}")
            asking = self._peer_upstream.send_request(scope, peer_url(peer), headers, document.body)
            try:
                response = await answer.await_with_keepalive(asking)
            except GatewayRefusal as fault:
                self.peers.mark_failed(peer)
                refusal = fault
            else:
                await answer.forward_answer(response)
                return True
        if refusal and only:
            raise _peer_gone_refusal(peer.name) from refusal
        return False

    async def _forward_at_model_port(self, scope: Message, body: Body, send: Send) -> None:
        listener = scope["state"]["listener"]
        answer = EngineAnswer(send, gateway_answers.api_of(scope["path"]), None)
        serving = await self.hot.query_serving_variant(listener.models[0])
        if serving is None:
            raise GatewayRefusal(
                503, f"{listener.models[0]} is loading or down", "down", _DOWN_RETRY_S
            )
        present_names = {name for name, _ in scope["headers"]}
        # A key for this port ends here; a key for the engine passes.
        dropped_headers = () if is_loopback(listener.address) else KEY_HEADERS
        headers = _headers_for_engine(scope, *dropped_headers, length=True)
        content: Content = None
        reads = scope["method"] == "POST" and scope["path"] in MODEL_PATHS
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        # Parse it whatever Content-Encoding says: engines without decoders read the bytes as they
        # are.
        if reads and not _is_multipart_form(kind):
            whole = await body.read_whole(self._most)
            content, evened_shapes = self._body_for_model_port(whole, scope["path"], serving)
            self._report_rewritten_shapes(answer, serving.name, evened_shapes)
            headers = _headers_for_engine(scope, *dropped_headers)
        elif present_names & {b"content-length", b"transfer-encoding"}:
            content = body.read_chunks()
        else:
            body.mark_as_read()
        await self._forward_to_engine(answer, scope, serving, headers, content)

    def _body_for_model_port(
        self, body: bytes, path: str, model: config.Model
    ) -> tuple[bytes, list[Shape]]:
        """Check a body for a model's own port.

        Anything but a JSON object is left to the engine.
        """
        try:
            document = JsonBody(body)
        except GatewayRefusal as refusal:
            if refusal.reason == request_fields.TOO_MUCH:
                # An engine that can parse it would get a body that nobody checked.
                raise
            return body, []
        engine_crash_limits.refuse_dangerous_fields(
            document.validate_fields(request_fields.ModelFields)
        )
        content, evened_shapes = document.body_for_model(None, path, model.evens)
        return content if evened_shapes else body, evened_shapes

    def _report_rewritten_shapes(
        self, answer: EngineAnswer, model: str, shapes: list[Shape]
    ) -> None:
        """Count what was evened out of a request, and tell its client."""
        if shapes:
            self.counts.count_rewritten_request(model, shapes)
            answer.headers = [(EVENED, ",".join(shapes).encode())]

    @contextlib.contextmanager
    def _hold_slot_and_body(self, scope: Message, receive: Receive) -> Iterator[Body]:
        """Hold a slot among the running requests, and yield the body. Refuse if all are taken."""
        caller = _caller(scope)
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        own = scope["state"]["listener"].kind != "model"
        if own and lengths and lengths[0].isdigit() and int(lengths[0]) > self._most:
            raise too_large_refusal(self._most)
        with self._hold_caller_slot(caller), self._slots.hold_body_memory() as take:
            yield Body(receive, take)

    def _hold_caller_slot(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return self._slots.hold_slot(caller.person.name if caller.is_limited else None)

    def _who_may_switch_text(self, model: str | None) -> str:
        return (
            f"A key of role operate may switch on {self.gateway.host} (its page, POST /switch), "
            f"and so may a login there: switch.sh {model or 'MODEL'}"
        )

    async def _unknown_model_refusal(self, name: str, caller: Caller) -> GatewayRefusal:
        known_models = {
            model["id"]: model["lockstep"]["host"]
            for model in await self._models_with_peers(caller)
        }
        if name == AUTO:
            message = f"no model is hot on {self.gateway.host}. {self._who_may_switch_text(None)}"
            return GatewayRefusal(503, message, "cold", COLD_RETRY_S)
        if name in known_models:
            return _peer_gone_refusal(known_models[name])
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


def _is_multipart_form(content_type: str) -> bool:
    return content_type.lower().startswith("multipart/form-data")


def _peer_gone_refusal(peer: str) -> GatewayRefusal:
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


async def _health_response(_: Request) -> Response:
    return gateway_answers.json_response({"status": "ok"})


async def _refuse_unknown_path(scope: Message, receive: Receive, send: Send) -> None:
    raise GatewayRefusal(
        404, "no such path; `lockstep help gateway` has all of them", "path", close=True
    )


def _headers_for_engine(scope: Message, *but: bytes, length: bool = False) -> Headers:
    """Return a request's headers for an engine; with `length`, keep those of an unchanged body."""
    left_out = (*but, *PEER_HEADERS) if length else (*but, *PEER_HEADERS, b"content-length")
    return end_to_end_headers(scope["headers"], left_out)
