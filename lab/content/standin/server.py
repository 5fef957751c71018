"""The HTTP side of the stand-in engine."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from . import answers, chat_template, messages, metrics, pooling, responses
from .arguments import Serving
from .generation import Json, check, pieces
from .knobs import Knobs
from .metrics import Counters
from .refusals import StandinRefusal

#: SGLang's /health gives up on its own generated token after so many seconds.
HEALTH_TIMEOUT = 20.0
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
COUNT = f"{MESSAGES}/count_tokens"


class EngineServer(ThreadingHTTPServer):
    """One engine's port. ``alive`` tells whether the engine process still runs."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, serving: Serving, knobs: Knobs, version: str, started_with: Json) -> None:
        self.serving = serving
        self.knobs = knobs
        self.version = version
        self.started_with = started_with
        self.counters = Counters()
        self.template = chat_template.of_model(serving, version)
        self.ready = threading.Event()
        self.alive: Callable[[], bool] = lambda: True
        self._last_metrics = ""
        # Bound at once, so that a taken port is found early; listening only when opened.
        super().__init__((serving.host, serving.port), EngineHandler, bind_and_activate=False)
        self.server_bind()

    def metrics(self) -> str:
        """The text of /metrics; it stands still when the engine process is wedged."""
        if not self.knobs.is_wedged or not self._last_metrics:
            metric_arguments = (
                self.counters,
                self.serving.names[0],
                self.serving.draft is not None,
            )
            self._last_metrics = (
                metrics.vllm_metrics(*metric_arguments)
                if self.serving.engine == "vllm"
                else metrics.sglang_metrics(
                    *metric_arguments, self.knobs.decode_rate * self.counters.running
                )
            )
        return self._last_metrics

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of the address."""
        socketserver.TCPServer.server_bind(self)


class EngineHandler(BaseHTTPRequestHandler):
    server: EngineServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def do_GET(self) -> None:
        server = self.server
        serving, path = server.serving, self.path.partition("?")[0]
        if path in ("/health", "/health_generate"):
            self._health()
        elif path == "/standin/argv":
            self._json(200, server.started_with)
        elif path == "/standin/knob":
            self._json(200, asdict(server.knobs))
        elif not self._is_allowed(path):
            self._json(401, {"error": "Unauthorized"})
        elif path == "/v1/models":
            names = serving.names
            engine = serving.engine
            self._json(200, answers.models(names, serving.model, serving.context, engine))
        elif path == "/metrics" and serving.metrics:
            self._metrics()
        elif path in ("/version", "/server_info", "/get_server_info"):
            self._json(200, {"version": server.version})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path == "/standin/knob":
            self._turn(body)
        elif not self._is_allowed(path):
            self._json(401, {"error": "Unauthorized"})
        elif pooling.is_served(path, self.server.serving):
            self._pool(body, path)
        elif path in (CHAT, PLAIN, MESSAGES, COUNT, RESPONSES) and not self.server.serving.pooling:
            self._complete(body, path)
        else:
            self._json(404, {"detail": "Not Found"})

    def _is_allowed(self, path: str) -> bool:
        key = self.server.serving.api_key
        is_guarded = self.server.serving.engine == "sglang" or path.startswith("/v1")
        authorization = self.headers.get("Authorization", "")
        return not key or not is_guarded or authorization == f"Bearer {key}"

    def _health(self) -> None:
        server = self.server
        if not server.ready.is_set() or not server.alive():
            self._bytes(503, b"", "text/plain")
            return
        limit = time.monotonic() + HEALTH_TIMEOUT
        while server.serving.engine == "sglang" and server.knobs.is_wedged:
            if time.monotonic() > limit or self._is_gone():
                self._bytes(503, b"", "text/plain")
                return
            time.sleep(0.05)
        self._bytes(200, b"", "text/plain")

    def _metrics(self) -> None:
        text = self.server.metrics()
        self._bytes(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _turn(self, body: bytes) -> None:
        # Keep the counters of this moment, in case this turn wedges the engine.
        self.server.metrics()
        try:
            self.server.knobs.turn(json.loads(body))
        except (ValueError, AttributeError, TypeError) as error:
            self._json(400, {"error": str(error)})
            return
        self._json(200, asdict(self.server.knobs))

    def _up(self) -> bool:
        """Tell whether the engine can answer; if it cannot, the error has been sent."""
        server = self.server
        if server.ready.is_set() and server.alive():
            return True
        message = "The engine is not ready" if server.alive() else "EngineCore died"
        status = 503 if server.alive() else 500
        kind = "InternalServerError"
        self._json(status, answers.error(status, message, kind, server.serving.engine))
        return False

    def _pool(self, body: bytes, path: str) -> None:
        server = self.server
        engine = server.serving.engine
        if not self._up():
            return
        try:
            request = json.loads(body)
            answer = pooling.answer(
                path, request, server.serving, server.knobs, server.counters, self._is_gone
            )
        except StandinRefusal as error:
            self._json(error.status, answers.error(error.status, str(error), error.kind, engine))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            self._json(400, answers.error(400, f"bad request: {error}", "BadRequestError", engine))
        else:
            self._json(200, answer)

    def _complete(self, body: bytes, path: str) -> None:
        server = self.server
        engine = server.serving.engine
        if not self._up():
            return
        chat = path != PLAIN
        try:
            request = json.loads(body)
            chat_request = request
            if path == RESPONSES:
                chat_request = responses.as_chat(request, engine)
            elif path in (MESSAGES, COUNT):
                chat_request = messages.as_chat(request)
            job = check(chat_request, server.serving, server.knobs, server.template, chat=chat)
        except StandinRefusal as error:
            self._json(error.status, answers.error(error.status, str(error), error.kind, engine))
            return
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            self._json(400, answers.error(400, f"bad request: {error}", "BadRequestError", engine))
            return
        if job.logprobs and server.knobs.corruption == "nan" and engine == "vllm":
            # The error of the engine's encoder about a value that is no number.
            message = "Out of range float values are not JSON compliant: nan"
            self._json(500, answers.error(500, message, "InternalServerError", engine))
            return
        speculative = server.serving.draft is not None
        parts = pieces(job, server.knobs, server.counters, speculative, self._is_gone)
        model = str(request.get("model") or server.serving.names[0])
        with_usage, name = not server.knobs.no_usage, f"{engine} {server.serving.names[0]}"
        form = {MESSAGES: messages, RESPONSES: responses}.get(path)
        if path == COUNT:
            self._json(200, {"input_tokens": job.prompt_tokens})
        elif form and job.stream:
            self._stream(form.events(job, parts, model, name))
        elif form:
            self._json(200, form.whole(job, parts, model, name))
        elif job.stream:
            self._stream(answers.events(job, parts, model, chat, with_usage, name))
        else:
            talk = server.knobs.corruption
            self._json(200, answers.whole(job, parts, model, chat, with_usage, talk, name))

    def _is_gone(self) -> bool:
        """Tell whether the client has closed the connection, or the engine has died."""
        if not self.server.alive():
            return True
        readable, _, _ = select.select([self.connection], [], [], 0)
        with contextlib.suppress(BlockingIOError):
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        return False

    def _stream(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _json(self, status: int, value: object) -> None:
        self._bytes(status, json.dumps(value).encode(), "application/json")

    def _bytes(self, status: int, body: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        host, port = self.client_address[:2]
        words = format % args
        print(f"INFO:     {host}:{port} - {words}", flush=True)
