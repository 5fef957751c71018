"""Two ranks of one model, as two Sparks run them: each with a GPU, its own group of processes.

What its rank 0 says, and what memory comes back, when a process of rank 1 or 0 is killed or frozen:
`lockstep.onhost.cluster` takes down both ranks, and this shows what it may rely on meanwhile.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cuda import page
from benchmarks.cuda.card import count
from benchmarks.cuda.cases import CASES, command
from benchmarks.cuda.faults import streams
from benchmarks.cuda.server import MODEL, PORT, Environment, Server
from lockstep.onhost.core.config import Host
from lockstep.onhost.core.layout import Paths
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.switching.wedge import Watch

_MASTER_PORT = PORT + 100
_CASE = replace(CASES["qwen3-0.6b"], flags=("--enforce-eager", "--tensor-parallel-size", "2"))
# An engine that sees its other rank end says so within seconds, or waits for it without a bound.
LIMIT_S = 30.0

#: What happens → rank, a word of the process's name ("" for the main one), signal.
FAULTS: Mapping[str, tuple[int, str, int]] = {
    "rank 1: its worker is killed": (1, "Worker", signal.SIGKILL),
    "rank 1: its main process is killed": (1, "", signal.SIGKILL),
    "rank 1: its worker is frozen": (1, "Worker", signal.SIGSTOP),
    "rank 0: its engine process is killed": (0, "EngineCor", signal.SIGKILL),
}


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Each fault on two ranks of their own, with streams open."""
    if count() < 2:
        yield "left out", "this machine has one GPU"
        return
    for name, (rank, word, act) in FAULTS.items():
        with _ranks(environment, folders) as (servers, ready):
            yield name, ready if "failed" in ready else _fault(servers, rank, word, act)


@contextmanager
def _ranks(
    environment: Environment, folders: Path
) -> Iterator[tuple[list[Server], dict[str, Any]]]:
    servers = [_rank(environment, folders, rank) for rank in (0, 1)]
    try:
        yield servers, servers[0].wait()
    finally:
        for server in servers:
            server.kill()


def _rank(environment: Environment, folders: Path, rank: int) -> Server:
    words, variables = command(_CASE, folders)
    keys = ENGINES["vllm"].rank_arguments(
        rank=rank, size=2, master="127.0.0.1", port=_MASTER_PORT, copies=1
    )
    flags: list[str] = []
    for key, value in keys.items():
        if value is not None:
            flags += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    own = replace(environment, card=replace(environment.card, index=rank))
    variables = {**variables, "CUDA_VISIBLE_DEVICES": str(rank)}
    return Server(own, f"rank-{rank}", (*words, *flags), variables)


def _fault(servers: list[Server], rank: int, word: str, act: int) -> dict[str, Any]:
    first = servers[0]
    ends = streams(first)
    watch = Watch(Host("here", {MODEL: first.target}), Paths(), token_wait_s=5.0)
    found: dict[str, Any] = {"before": watch.verdict(first.target)}
    hit = servers[rank]
    began = time.monotonic()
    os.kill(hit.part(word) if word else hit.process.pid, act)
    found |= _ends(servers, began)
    found["health"] = first.health()
    # The first look may still see what moved before.
    watch.verdict(first.target)
    found["watch"] = watch.verdict(first.target)
    found["streams"] = sorted(set(ends)) or ["open"]
    ended = time.monotonic()
    for server in servers:
        server.kill()
    found["killed_s"] = time.monotonic() - ended
    return found


def _ends(servers: list[Server], began: float) -> dict[str, float | None]:
    """Seconds since `began` until a main process has ended, and until a card's memory is back."""
    ends: dict[str, Callable[[], bool]] = {}
    for number, server in enumerate(servers):
        ends[f"main_{number}_s"] = server.over
        ends[f"memory_{number}_s"] = server.memory_back
    found: dict[str, float | None] = dict.fromkeys(ends)
    while None in found.values() and time.monotonic() - began < LIMIT_S:
        for name, done in ends.items():
            if found[name] is None and done():
                found[name] = time.monotonic() - began
        time.sleep(0.05)
    return found


def text(found: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    if "left out" in found:
        return f"## Two ranks\n\nNot measured: {found['left out']}."
    names = ("main_0_s", "main_1_s", "memory_0_s", "memory_1_s", "killed_s")
    rows = [
        [name, *page.row(seen, names), seen.get("health", seen.get("failed", "")),
         seen.get("watch") or "nothing", "; ".join(seen.get("streams", ()))]
        for name, seen in found.items()
    ]  # fmt: skip
    heads = (
        *("fault", "main process 0 gone, s", "1", "memory 0 back, s", "1"),
        *("all back after both were killed, s", "/health", "the wedge watch says", "streams"),
    )
    return "\n\n".join(["## Two ranks", page.table(heads, rows)])
