"""An engine in this process, with all the faults that a ruler met or could meet."""

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "some/model"
#: 256 tokens in 32 steps, as with drafts: slower than any memory, and soon done.
STEPS, STEP_S = 32, 0.005
VERSION_PAGES = {
    "vllm": ("/version", "version"),
    "sglang": ("/server_info", "version"),
    "llamacpp": ("/props", "build_info"),
}


@dataclass
class Engine:
    """An engine and its defects; every `True` is one defect."""

    swallow: bool = False  # Take the request and never answer, as a proxy that hangs itself.
    empty: bool = False  # Count tokens, and send no text.
    is_cached: bool = False  # Answer everything but the first request without the engine.
    other_model: bool = False  # Another model answers.
    answers_as: str = MODEL  # The name that answers carry, where it is not the model's.
    cut: bool = False  # End the stream in the middle.
    no_done: bool = False  # End the stream without [DONE].
    no_usage: bool = False  # Leave `usage` out.
    burst: bool = False  # Send the whole answer at once.
    crowd: int = 0  # Requests of other clients per request.
    status: int = 200  # Answer with this status instead.
    restarts: int = 0  # Be another engine after so many requests.
    short: int = 0  # Tokens to leave out.
    no_metrics: bool = False  # Publish no counters.
    lie: int = 0  # Tokens to count in `usage` beyond the generated ones.
    text_only: bool = False  # Refuse images, as --language-model-only does.
    #: The engine that it plays. SGLang refuses to stream token ids; llama.cpp counts along as
    #: timings, and only on request.
    kind: str = "vllm"
    #: Its parser holds the text back to the end. Then no event leaves at a step, but for
    #: llama.cpp's first one, and vLLM's where token ids are requested.
    holds: bool = False
    old: bool = False  # It does not know that key and ignores it.
    #: The message to answer with, by the request.
    answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    requests: int = 0
    finished_requests: int = 0
    generated_tokens: int = 0
    drafts: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metrics(self) -> str:
        """The counters in vLLM's words; three tokens drafted per step, 60 % accepted."""
        label = '{engine="0",model_name="m"}'
        return (
            f"vllm:num_requests_running{label} 0.0\n"
            f'vllm:request_success_total{{finished_reason="stop"}} {self.finished_requests}.0\n'
            'vllm:request_success_total{finished_reason="length"} 0.0\n'
            f"vllm:generation_tokens_total{label} {self.generated_tokens}.0\n"
            f"vllm:spec_decode_num_drafts_total{label} {self.drafts}\n"
            f"vllm:spec_decode_num_draft_tokens_total{label} {self.drafts * 3}\n"
            f"vllm:spec_decode_num_accepted_tokens_total{label} {self.drafts * 1.8}\n"
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def do_GET(self) -> None:
        engine = self.engine
        if self.path == "/v1/models":
            name = "another/model" if engine.other_model else MODEL
            self._json({"data": [{"id": name, "root": name, "max_model_len": 32768}]})
        elif self.path == VERSION_PAGES[engine.kind][0]:
            late = engine.restarts and engine.requests > engine.restarts
            self._json({VERSION_PAGES[engine.kind][1]: "2" if late else "1"})
        elif self.path == "/metrics" and not engine.no_metrics:
            self._bytes(200, engine.metrics().encode())
        else:
            self._bytes(404, b"{}")

    def do_POST(self) -> None:
        engine = self.engine
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with engine.lock:
            engine.requests += 1
            first = engine.requests == 1
        if engine.swallow and not first:
            engine.release.wait(20)
            self.close_connection = True
            return
        if engine.status != 200 and not first:
            self._json({"error": {"message": "no"}}, engine.status)
            return
        if engine.kind == "sglang" and request.get("return_token_ids") and request.get("stream"):
            self._json({"error": {"message": "return_token_ids is not supported here"}}, 400)
            return
        words = len(str(request["messages"]).split())
        if engine.text_only and not isinstance(request["messages"][0]["content"], str):
            self._json({"error": {"message": "At most 0 image(s) may be provided"}}, 400)
            return
        text = "" if engine.empty and not first else self._text(request)
        message = {"content": text} if engine.answer is None else engine.answer(request)
        tokens = request["max_tokens"]
        if not request.get("ignore_eos"):
            tokens = min(tokens, 1 + len(str(message)) // 8)
        finish = "length" if tokens == request["max_tokens"] else "stop"
        tokens -= engine.short * (tokens > 16)
        with engine.lock:
            if not engine.is_cached or first:
                engine.finished_requests += 1 + engine.crowd
                engine.generated_tokens += tokens
                engine.drafts += tokens // 2
        usage = {"prompt_tokens": words, "completion_tokens": tokens + engine.lie}
        reply = {"model": engine.answers_as, "usage": usage}
        if engine.no_usage and not first:
            del reply["usage"]
        if not request.get("stream"):
            choice = {"message": message, "finish_reason": finish}
            self._json({**reply, "choices": [choice]})
            return
        with contextlib.suppress(OSError):
            self._stream(str(message.get("content") or ""), reply, finish, request)

    def _text(self, request: dict[str, Any]) -> str:
        return f"words of {zlib.crc32(str(request['messages'][0]['content']).encode())} " * STEPS

    def _stream(self, text: str, reply: dict, finish: str, request: dict) -> None:
        engine = self.engine
        usage = reply.pop("usage", None)
        ids = request.get("return_token_ids") and engine.kind == "vllm" and not engine.old
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        steps = min(STEPS, request["max_tokens"])
        size = -(-len(text) // steps)
        for number in range(steps):
            if engine.cut and number == steps // 2:
                self.wfile.write(b"0\r\n\r\n")
                return
            time.sleep(0 if engine.burst else STEP_S)
            part = text[number * size : (number + 1) * size]
            if engine.holds:
                part = text if number == steps - 1 else ""
            if part or ids or (engine.kind == "llamacpp" and number == 0):
                token_count = request["max_tokens"] * (number + 1) // steps
                count = self._count(request, usage, token_count)
                choices = [{"delta": {"content": part}}]
                self._event({**reply, **count, "choices": choices}, engine.burst)
        self._event({**reply, "choices": [{"delta": {}, "finish_reason": finish}]})
        if usage:
            self._event({**reply, "choices": [], "usage": usage})
        if not engine.no_done:
            self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _count(self, request: dict, usage: dict | None, token_count: int) -> dict:
        if self.engine.kind == "llamacpp":
            timings = {"timings": {"predicted_n": token_count}}
            return timings if request.get("timings_per_token") else {}
        return {"usage": {**usage, "completion_tokens": token_count}} if usage else {}

    def _event(self, value: Any, is_buffered: bool = False) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n", is_buffered)

    def _chunk(self, data: bytes, is_buffered: bool = False) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if not is_buffered:
            self.wfile.flush()

    def _json(self, value: Any, status: int = 200) -> None:
        self._bytes(status, json.dumps(value).encode())

    def _bytes(self, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """The engine on a port; gives its URL."""
    # Buffered, so that output without a flush leaves in one piece.
    handler = type("Handler", (_Handler,), {"engine": engine, "wbufsize": 65536})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        engine.release.set()
        server.shutdown()
        server.server_close()
