"""The engine, the client and the figures of `benchmarks.gateway`; runs on a host, as root.

usage: TOOLS-PYTHON gateway_on_host.py ROUNDS [CADDY] > FIGURES.json

The engine and the gateway are units of their own, of the host's installed programs: the gateway
that serves there is left alone. Packages: those of the tools' environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LIBRARY = Path("/usr/local/lib/lockstep")
ENGINE, GATEWAY, CADDY = 18101, 18102, 18103
UNITS = {ENGINE: "bench-engine", GATEWAY: "bench-gateway", CADDY: "bench-caddy"}
NAMES = {ENGINE: "direct", GATEWAY: "gateway", CADDY: "caddy"}
PATH = "/v1/chat/completions"
FIRST_BYTES, STREAMS, IDLE = 40, 64, 1000
#: The tokens of 64 streams of a small mixture on a Spark, as seen there, and half as many again:
#: more than a gateway there has to pass on.
TOK_S, TOKENS = 30.0, 120
READY_S, IDLE_S = 30.0, 5.0
_CHUNK = {
    "id": "chatcmpl-0123456789abcdef0123456789abcdef",
    "object": "chat.completion.chunk",
    "created": 1795419337,
    "model": "bench",
    "choices": [
        {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
    ],
}
EVENT = b"data: " + json.dumps(_CHUNK).encode() + b"\n\n"
END = b"data: [DONE]\n\n"
CADDYFILE = (
    f"{{\n admin off\n}}\nhttp://127.0.0.1:{CADDY} {{\n reverse_proxy 127.0.0.1:{ENGINE}\n}}\n"
)


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI engine: `max_tokens` events at `rate` a second, after `wait` seconds."""
    if scope["type"] != "http":
        return
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    request = json.loads(body + message["body"] or b"{}")
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await asyncio.sleep(request.get("wait", 0))
    began = time.monotonic()
    for number in range(request.get("max_tokens", 1)):
        late = began + number / request.get("rate", 1e9) - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": END, "more_body": False})


def serve() -> None:
    """Serve the engine; the main function of its own process."""
    import uvicorn

    uvicorn.run(engine, port=ENGINE, http="httptools", log_level="warning", lifespan="off")


async def stream(port: int, **options: float) -> tuple[float, int]:
    """Ask one streamed request: seconds to the first event, and the number of events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    body = json.dumps({"model": "bench", "messages": [], "stream": True, **options}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {len(body)}\r\n"
    head += "content-type: application/json\r\nconnection: close\r\n\r\n"
    began, first, events, last = time.perf_counter(), 0.0, 0, b""
    writer.write(head.encode() + body)
    try:
        while data := await reader.read(2**16):
            # An event may come in two parts.
            events += (last + data).count(b"\ndata: {") - last.count(b"\ndata: {")
            first = first or (time.perf_counter() - began if events else 0.0)
            last = data[-200:]
    finally:
        writer.close()
    if not last.endswith(b"0\r\n\r\n"):
        sys.exit(f"{NAMES[port]}: a stream ended without its end, after {events} events: {last!r}")
    return first, events


async def first_bytes(port: int) -> float:
    """Median milliseconds to the first event of one stream at a time."""
    durations = [(await stream(port, max_tokens=1))[0] for _ in range(FIRST_BYTES)]
    return statistics.median(durations) * 1000


async def throughput(port: int, rate: float) -> float:
    """Tokens per second of 64 streams at once, each at `rate` tokens a second."""
    began = time.perf_counter()
    requests = (stream(port, max_tokens=TOKENS, rate=rate) for _ in range(STREAMS))
    events = sum(events for _, events in await asyncio.gather(*requests))
    if events != STREAMS * TOKENS:
        sys.exit(f"{NAMES[port]}: {events} of {STREAMS * TOKENS} tokens came")
    return events / (time.perf_counter() - began)


async def idle(port: int) -> tuple[int, float]:
    """Hold a thousand streams that rest for seconds: how many end well, and the memory then, MB."""
    tasks = [asyncio.create_task(stream(port, wait=IDLE_S + IDLE_S)) for _ in range(IDLE)]
    await asyncio.sleep(IDLE_S)
    memory = resident(UNITS[port])
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return sum(isinstance(result, tuple) and result[1] == 1 for result in results), memory


def resident(unit: str) -> float:
    """Memory of a unit's processes, MB (VmRSS; a shared page counts once in each process)."""
    group = Path(f"/sys/fs/cgroup/system.slice/{unit}.service/cgroup.procs")
    total = 0
    for pid in group.read_text().split():
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.split("VmRSS:")[1].split()[0])
    return total * 1024 / 1e6


@contextlib.contextmanager
def unit(port: int, argv: Sequence[str]) -> Iterator[None]:
    """Run a program as a unit, from the moment its port is open to the end of the block."""
    name = UNITS[port]
    run = ["systemd-run", "--quiet", "--collect", f"--unit={name}", "--property=LimitNOFILE=8192"]
    if port == GATEWAY:
        # The gateway gets its ports only from systemd.
        run.append(f"--socket-property=ListenStream=127.0.0.1:{port}")
    subprocess.run([*run, "--", *argv], check=True)
    try:
        wait_for(port)
        yield
    finally:
        # Stop the socket first; it would start the service again.
        for words in (["stop", f"{name}.socket"], ["kill", "--signal=KILL", name], ["stop", name]):
            subprocess.run(["systemctl", *words], check=False, stderr=subprocess.DEVNULL)


def wait_for(port: int) -> None:
    """Wait until a server listens on the port."""

    async def connect() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    give_up = time.monotonic() + READY_S
    while True:
        try:
            return asyncio.run(connect())
        except OSError:
            if time.monotonic() > give_up:
                sys.exit(f"{NAMES[port]} does not listen within {READY_S:.0f} s")
            time.sleep(0.1)


def gateway_command(root: Path) -> list[str]:
    """The gateway's command line, with its files in a root of its own."""
    (root / "etc/lockstep").mkdir(parents=True)
    (root / "sys").symlink_to("/sys")
    model = {
        "name": "bench",
        "unit": f"{UNITS[ENGINE]}.service",
        "url": f"http://127.0.0.1:{ENGINE}",
        "engine_url": f"http://127.0.0.1:{ENGINE}",
        "served_name": "bench",
        "memory_gib": 1.0,
        "start_timeout_s": 60,
    }
    host = {"name": "bench", "models": {"bench": model}}
    gateway = {
        "host": "bench",
        "listeners": [{"kind": "local", "address": "127.0.0.1", "port": GATEWAY}],
    }
    (root / "etc/lockstep/models.json").write_text(json.dumps(host))
    (root / "etc/lockstep/gateway.json").write_text(json.dumps(gateway))
    program = (
        "import sys; from pathlib import Path; from lockstep.onhost.core import layout; "
        "from lockstep.onhost.gateway import server; "
        "sys.exit(server.main([], layout.Paths(Path(sys.argv[1])), Path(sys.argv[1], 'usage')))"
    )
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(LIBRARY)!r}); " + program,
            str(root)]  # fmt: skip


async def measure(ports: Sequence[int], rounds: int) -> dict[str, Any]:
    """Figures of each way, in turn."""
    figures: dict[str, dict[str, list[float]]] = {NAMES[port]: {} for port in ports}

    def note(port: int, figure: str, value: float) -> None:
        figures[NAMES[port]].setdefault(figure, []).append(value)

    for _ in range(rounds):
        for port in ports:
            note(port, "first_ms", await first_bytes(port))
        for port in ports:
            note(port, "tok_s", await throughput(port, TOK_S))
        for port in ports:
            note(port, "most_tok_s", await throughput(port, 1e9))
    for port in ports[1:]:
        finished_streams, memory = await idle(port)
        note(port, "idle_held", finished_streams)
        note(port, "idle_mb", memory)
    return figures


def main() -> None:
    """Start all units, measure, print."""
    if sys.argv[1] == "serve":
        serve()
        return
    rounds, caddies = int(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(unit(ENGINE, [sys.executable, str(Path(__file__).resolve()), "serve"]))
        stack.enter_context(unit(GATEWAY, gateway_command(Path(folder))))
        ports = [ENGINE, GATEWAY]
        if caddies:
            (Path(folder) / "Caddyfile").write_text(CADDYFILE)
            argv = [caddies[0], "run", "--config", f"{folder}/Caddyfile"]
            stack.enter_context(unit(CADDY, argv))
            ports.append(CADDY)
        print(json.dumps(asyncio.run(measure(ports, rounds))))


if __name__ == "__main__":
    main()
