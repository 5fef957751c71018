"""Ends and faults: what dies when, when its memory is back, and what Lockstep says of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cuda import page
from benchmarks.cuda.card import waited
from benchmarks.cuda.cases import CASES, Case, command
from benchmarks.cuda.server import MODEL, PORT, Environment, Server, serving
from lockstep.bench.client import Client
from lockstep.bench.prompts import user
from lockstep.bench.sample import Ask
from lockstep.onhost import engines
from lockstep.onhost.core.config import Host
from lockstep.onhost.core.layout import Paths
from lockstep.onhost.switching.wedge import Watch

STREAMS = 16
_CASE = replace(CASES["qwen3-0.6b"], flags=("--enforce-eager",))


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Every end and fault, each on an engine of its own."""
    stages: dict[str, Callable[[Environment, Path], dict[str, Any]]] = {
        "refused starts": _refused,
        "ended while it loads": _loading,
        "frozen": _frozen,
        "stopped at rest": _ended,
        "stopped with streams": _ended_busy,
        "main process killed": _main_killed,
    }
    for name, stage in stages.items():
        yield name, stage(environment, folders)


def _server(environment: Environment, folders: Path, case: Case, port: int = PORT) -> Server:
    words, variables = command(case, folders)
    return Server(environment, case.name, (*words, "--port", str(port)), variables, port)


def _refused(environment: Environment, folders: Path) -> dict[str, Any]:
    """Starts that cannot end well; what an operator is told of each.

    One after the other: an engine that ends gives memory back, and another that measures its own
    use meanwhile fails for that instead.
    """
    wrong: dict[str, Mapping[str, Any]] = {
        "no room": {"overrides": {"gpu_memory_utilization": 0.01}},
        "more than there is": {"overrides": {"gpu_memory_utilization": 0.999}},
        "no such flag": {"flags": ("--no-such-flag",)},
        "no weights": {"flags": ("--load-format", "auto")},
    }
    found = {}
    for name, change in wrong.items():
        case = replace(_CASE, name=f"refused-{name}".replace(" ", "-"), **change)
        server = _server(environment, folders, case)
        try:
            found[name] = server.wait()
        finally:
            server.kill()
    return found


def _loading(environment: Environment, folders: Path) -> dict[str, Any]:
    """The engine's process is killed before it answers."""
    server = _server(environment, folders, replace(_CASE, name="killed-while-loading"))

    def kill() -> None:
        def has_core() -> bool:
            try:
                server.core()
            except LookupError:
                return False
            return True

        if waited(has_core, time.monotonic(), 120.0) is not None:
            os.kill(server.core(), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return server.wait()
    finally:
        killer.join()
        server.kill()


@contextmanager
def _busy(environment: Environment, folders: Path, name: str) -> Iterator[tuple[Server, list[str]]]:
    """A server with `STREAMS` streams open, and what became of each of them so far."""
    words, variables = command(replace(_CASE, name=name), folders)
    with serving(environment, name, words, variables) as (server, ready):
        if "failed" in ready:
            raise RuntimeError(f"{name}: {ready['failed']}")
        yield server, streams(server)


def streams(server: Server) -> list[str]:
    """Open `STREAMS` streams; what became of each that has ended, which grows.

    Raises:
        RuntimeError: the engine does not run so many.
    """
    ends: list[str] = []
    client = Client(server.url, MODEL)

    def stream(number: int) -> None:
        ask = Ask("x", user(f"{number} tell"), 20000, ignore_eos=True, timeout_s=120.0)
        sample = client.complete(ask)
        ends.append(sample.fault or sample.refusal or "complete")

    for number in range(STREAMS):
        threading.Thread(target=stream, args=(number,), daemon=True).start()
    running = waited(lambda: _outstanding(client) >= STREAMS, time.monotonic(), 30.0)
    if running is None:
        raise RuntimeError(f"{server.name}: {_outstanding(client)} of {STREAMS} streams run")
    return ends


def _outstanding(client: Client) -> int:
    found = engines.counters(client.get("/metrics") or "")
    return found.outstanding if found else 0


def _frozen(environment: Environment, folders: Path) -> dict[str, Any]:
    """The engine's process is stopped, seen by the wedge watch, goes on, and is killed."""
    with _busy(environment, folders, "frozen") as (server, ends):
        host = Host("here", {MODEL: server.target})
        watch = Watch(host, Paths(), token_wait_s=10.0)
        found: dict[str, Any] = {"alive": watch.verdict(server.target)}
        core = server.core()
        os.kill(core, signal.SIGSTOP)
        # The first look after it may still see what moved before.
        watch.verdict(server.target)
        found |= {"wedged": watch.verdict(server.target), "health": server.health()}
        os.kill(core, signal.SIGCONT)
        found |= {"again": watch.verdict(server.target)}
        found |= {"killed": server.signalled(signal.SIGKILL, core)}
        waited(lambda: len(ends) == STREAMS, time.monotonic(), 10.0)
        return {**found, "streams": sorted(set(ends))}


def _ended(environment: Environment, folders: Path) -> dict[str, Any]:
    words, variables = command(_CASE, folders)
    with serving(environment, "ended", words, variables) as (server, ready):
        return dict(ready) if "failed" in ready else server.stopped()


def _ended_busy(environment: Environment, folders: Path) -> dict[str, Any]:
    with _busy(environment, folders, "ended-busy") as (server, ends):
        found = server.stopped()
        waited(lambda: len(ends) == STREAMS, time.monotonic(), 10.0)
        return {**found, "streams": sorted(set(ends))}


def _main_killed(environment: Environment, folders: Path) -> dict[str, Any]:
    with _busy(environment, folders, "main-killed") as (server, _):
        return server.signalled(signal.SIGKILL)


def text(found: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    starts = dict(found.get("refused starts", {}))
    starts["killed while it loads"] = found.get("ended while it loads", {})
    refused = [
        [name, *page.row(seen, ("exit", "seconds"), 1), " / ".join(seen.get("reason", []))[:400]]
        for name, seen in starts.items()
    ]
    frozen = found.get("frozen", {})
    ends = {
        "stopped at rest": found.get("stopped at rest", {}),
        f"stopped with {STREAMS} streams": found.get("stopped with streams", {}),
        "engine process killed, streams open": frozen.get("killed", {}),
        "main process killed, streams open": found.get("main process killed", {}),
    }
    names = ("memory_s", "main_s", "all_s")
    ended = [
        [name, *page.row(seen, names), ", ".join(seen.get("left", ()))]
        for name, seen in ends.items()
    ]
    watched = [[name, frozen[name] or "nothing"] for name in ("alive", "wedged") if name in frozen]
    return "\n\n".join([
        "## Faults",
        page.table(("start", "exit of ready", "seconds", "what an operator reads"), refused),
        page.table(("end", "memory back, s", "main gone, s", "all gone, s", "left"), ended),
        page.table(("engine process", "the wedge watch says"), watched),
    ])  # fmt: skip
