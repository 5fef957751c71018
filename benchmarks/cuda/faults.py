"""Ends and faults: which process ends when, when its memory is back, and Lockstep's messages."""

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
from benchmarks.cuda.card import wait_until
from benchmarks.cuda.cases import CASES, Case, command
from benchmarks.cuda.server import MODEL, PORT, Environment, Server, serving
from lockstep.bench.client import Client
from lockstep.bench.prompts import user
from lockstep.bench.sample import Ask
from lockstep.onhost import engines
from lockstep.onhost.core.config import HostConfig
from lockstep.onhost.core.layout import Paths
from lockstep.onhost.switching.wedge_watch import WedgeWatch

STREAMS = 16
_CASE = replace(CASES["qwen3-0.6b"], flags=("--enforce-eager",))


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Every end and fault, each on an engine of its own."""
    stages: dict[str, Callable[[Environment, Path], dict[str, Any]]] = {
        "refused starts": _measure_refusals,
        "ended while it loads": _loading,
        "frozen": _measure_frozen,
        "stopped at rest": _measure_end,
        "stopped with streams": _ended_busy,
        "main process killed": _main_killed,
    }
    for name, stage in stages.items():
        yield name, stage(environment, folders)


def _server(environment: Environment, folders: Path, case: Case, port: int = PORT) -> Server:
    words, variables = command(case, folders)
    return Server(environment, case.name, (*words, "--port", str(port)), variables, port)


def _measure_refusals(environment: Environment, folders: Path) -> dict[str, Any]:
    """Measure starts that must fail, and the messages that an operator gets.

    The starts follow one another: an engine that ends gives memory back, and another engine that
    measures its own use at that moment fails for that reason instead.
    """
    wrong: dict[str, Mapping[str, Any]] = {
        "no room": {"overrides": {"gpu_memory_utilization": 0.01}},
        "more than there is": {"overrides": {"gpu_memory_utilization": 0.999}},
        "no such flag": {"flags": ("--no-such-flag",)},
        "no weights": {"flags": ("--load-format", "auto")},
    }
    refusals = {}
    for name, change in wrong.items():
        case = replace(_CASE, name=f"refused-{name}".replace(" ", "-"), **change)
        server = _server(environment, folders, case)
        try:
            refusals[name] = server.wait()
        finally:
            server.kill()
    return refusals


def _loading(environment: Environment, folders: Path) -> dict[str, Any]:
    """Kill the engine's process before the engine answers."""
    server = _server(environment, folders, replace(_CASE, name="killed-while-loading"))

    def kill() -> None:
        def has_core() -> bool:
            try:
                server.core()
            except LookupError:
                return False
            return True

        if wait_until(has_core, time.monotonic(), 120.0) is not None:
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
    """A server with `STREAMS` streams open, and the end of each stream so far."""
    words, variables = command(replace(_CASE, name=name), folders)
    with serving(environment, name, words, variables) as (server, ready):
        if "failed" in ready:
            raise RuntimeError(f"{name}: {ready['failed']}")
        yield server, streams(server)


def streams(server: Server) -> list[str]:
    """Open `STREAMS` streams; the list of their ends grows as they end.

    Raises:
        RuntimeError: the engine does not run that many.
    """
    ends: list[str] = []
    client = Client(server.url, MODEL)

    def stream(number: int) -> None:
        ask = Ask("x", user(f"{number} tell"), 20000, ignore_eos=True, timeout_s=120.0)
        sample = client.complete(ask)
        ends.append(sample.fault or sample.refusal or "complete")

    for number in range(STREAMS):
        threading.Thread(target=stream, args=(number,), daemon=True).start()
    running = wait_until(lambda: _outstanding(client) >= STREAMS, time.monotonic(), 30.0)
    if running is None:
        raise RuntimeError(f"{server.name}: {_outstanding(client)} of {STREAMS} streams run")
    return ends


def _outstanding(client: Client) -> int:
    counters = engines.counters(client.get("/metrics") or "")
    return counters.outstanding if counters else 0


def _measure_frozen(environment: Environment, folders: Path) -> dict[str, Any]:
    """Stop the engine's process until the wedge watch sees it, let it go on, and kill it."""
    with _busy(environment, folders, "frozen") as (server, ends):
        host = HostConfig("here", {MODEL: server.model})
        watch = WedgeWatch(host, Paths(), token_wait_s=10.0)
        figures: dict[str, Any] = {"alive": watch.wedge_reason(server.model)}
        core = server.core()
        os.kill(core, signal.SIGSTOP)
        # The first reading after the fault may still see counters that moved before it.
        watch.wedge_reason(server.model)
        figures |= {"wedged": watch.wedge_reason(server.model), "health": server.health()}
        os.kill(core, signal.SIGCONT)
        figures |= {"again": watch.wedge_reason(server.model)}
        figures |= {"killed": server.send_signal(signal.SIGKILL, core)}
        wait_until(lambda: len(ends) == STREAMS, time.monotonic(), 10.0)
        return {**figures, "streams": sorted(set(ends))}


def _measure_end(environment: Environment, folders: Path) -> dict[str, Any]:
    words, variables = command(_CASE, folders)
    with serving(environment, "ended", words, variables) as (server, ready):
        return dict(ready) if "failed" in ready else server.stop()


def _ended_busy(environment: Environment, folders: Path) -> dict[str, Any]:
    with _busy(environment, folders, "ended-busy") as (server, ends):
        figures = server.stop()
        wait_until(lambda: len(ends) == STREAMS, time.monotonic(), 10.0)
        return {**figures, "streams": sorted(set(ends))}


def _main_killed(environment: Environment, folders: Path) -> dict[str, Any]:
    with _busy(environment, folders, "main-killed") as (server, _):
        return server.send_signal(signal.SIGKILL)


def text(results: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    starts = dict(results.get("refused starts", {}))
    starts["killed while it loads"] = results.get("ended while it loads", {})
    refusal_rows = [
        [
            name,
            *page.row(figures, ("exit", "seconds"), 1),
            " / ".join(figures.get("reason", []))[:400],
        ]
        for name, figures in starts.items()
    ]
    freeze_figures = results.get("frozen", {})
    ends = {
        "stopped at rest": results.get("stopped at rest", {}),
        f"stopped with {STREAMS} streams": results.get("stopped with streams", {}),
        "engine process killed, streams open": freeze_figures.get("killed", {}),
        "main process killed, streams open": results.get("main process killed", {}),
    }
    names = ("memory_s", "main_s", "all_s")
    end_rows = [
        [name, *page.row(figures, names), ", ".join(figures.get("left", ()))]
        for name, figures in ends.items()
    ]
    watch_rows = [
        [name, freeze_figures[name] or "nothing"]
        for name in ("alive", "wedged")
        if name in freeze_figures
    ]
    return "\n\n".join([
        "## Faults",
        page.table(("start", "exit of ready", "seconds", "what an operator reads"), refusal_rows),
        page.table(("end", "memory back, s", "main gone, s", "all gone, s", "left"), end_rows),
        page.table(("engine process", "the wedge watch says"), watch_rows),
    ])  # fmt: skip
