"""What the proxy that merges roles adds to a request, beside the stand-in engine asked directly.

`.venv/bin/python -m benchmarks.roles_proxy`: no lab and no root. Requests through the proxy and
past it alternate in one run of this program, so that ratios hold on a machine whose speed drifts;
each figure is a median, with the quartile above it. The engine is a stand-in, far quicker than a
model: the milliseconds are what counts, for a real answer takes seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = (
    "import sys\nfrom standin import engine\nsys.exit(engine.serve('vllm', '0', [], sys.argv[1:]))"
)
CHAT = "/v1/chat/completions"
ROUNDS = 60
LONG_CONTEXT = ("--max-model-len", "10000000")
READY_S = 30.0
# A long talk with an agent: 200 messages of 1 kB, and a picture.
LONG = [{"role": ("user", "assistant")[n // 2 % 2], "content": "word " * 200} for n in range(200)]
PICTURE = [{"type": "image_url", "image_url": {"url": "data:," + "A" * 4_000_000}}]


@dataclass(frozen=True)
class Case:
    """One kind of request: what is asked, and the body it is asked with."""

    name: str
    messages: list[dict[str, Any]]
    stream: bool = False

    def body(self) -> bytes:
        """The JSON of the request."""
        asked = {"messages": self.messages, "max_tokens": 64, "stream": self.stream}
        return json.dumps(asked).encode()


CASES = (
    Case("one message", [{"role": "user", "content": "Hello."}]),
    Case("two to merge", [{"role": "user", "content": text} for text in ("Hello.", "There.")]),
    Case("200 kB, to merge", LONG),
    Case("4 MB picture, to merge", [{"role": "user", "content": c} for c in ("Look.", PICTURE)]),
    Case("stream of 64 tokens", [{"role": "user", "content": "Hello."}], stream=True),
)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(argv: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server, from the moment it answers to the end of the block."""
    with subprocess.Popen(
        argv, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as process:
        try:
            give_up = time.monotonic() + READY_S
            while not healthy(port):
                if process.poll() is not None or time.monotonic() > give_up:
                    sys.exit(f"{argv[0]} does not answer at port {port} within {READY_S:.0f} s")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def healthy(port: int) -> bool:
    """Whether /health is green."""
    client = HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(client), contextlib.suppress(OSError):
        client.request("GET", "/health")
        return client.getresponse().status == 200
    return False


def milliseconds(client: HTTPConnection, body: bytes) -> tuple[float, float]:
    """From the request to the first byte of the answer's body, and to its last."""
    start = time.perf_counter()
    client.request("POST", CHAT, body, {"Content-Type": "application/json"})
    answer = client.getresponse()
    answer.read(1)
    first = time.perf_counter()
    answer.read()
    if answer.status != 200:
        sys.exit(f"the stand-in answered HTTP {answer.status}")
    return (first - start) * 1000, (time.perf_counter() - start) * 1000


def compared(case: Case, direct: HTTPConnection, proxied: HTTPConnection) -> str:
    """One line: first byte and whole answer, past the proxy and through it."""
    body = case.body()
    pairs = [(milliseconds(direct, body), milliseconds(proxied, body)) for _ in range(ROUNDS)]
    words = [f"{case.name:<24}"]
    for index in (0, 1):
        past = statistics.median(pair[0][index] for pair in pairs)
        through = statistics.median(pair[1][index] for pair in pairs)
        added = [pair[1][index] - pair[0][index] for pair in pairs]
        _, middle, upper = statistics.quantiles(added, n=4)
        words.append(
            f"{past:7.2f} {through:7.2f} x{through / past:5.2f} +{middle:5.2f} (75 %: {upper:5.2f})"
        )
    return "  ".join(words)


def main() -> None:
    """Start both, measure, print."""
    engine, proxy = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(
            running(
                [sys.executable, "-c", STAND_IN, "model", "--port", str(engine), *LONG_CONTEXT],
                engine,
                PYTHONPATH=str(ROOT / "lab/content"),
                STANDIN_NEED_MODEL="0",
                STANDIN_LOAD_SECONDS="0.1",
                STANDIN_DECODE_RATE="100000",
                STANDIN_RECORD=f"{folder}/argv.json",
                STANDIN_KNOBS_FOLDER=folder,
                HF_HOME=folder,
            )
        )
        program = str(ROOT / "lockstep/onhost/access/roles_proxy.py")
        words = ["--merge", "--port", str(proxy), "--engine", f"http://127.0.0.1:{engine}"]
        stack.enter_context(running([sys.executable, program, *words], proxy))

        direct, proxied = (HTTPConnection("127.0.0.1", port) for port in (engine, proxy))
        print(f"milliseconds, medians of {ROUNDS}; past the proxy, through it, ratio, added")
        print(f"{'':<24}  {'first byte':<42}  whole answer")
        for case in CASES:
            compared(Case("", case.messages[:1], case.stream), direct, proxied)
            print(compared(case, direct, proxied), flush=True)


if __name__ == "__main__":
    main()
