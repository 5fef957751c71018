"""Two ranks of one model, as two Sparks run them: each with a GPU and its own process group.

A process of rank 1 or 0 is killed or frozen. Measured are the messages of rank 0 and the memory
that comes back. `lockstep.onhost.cluster` stops both ranks, and these figures show what it may
rely on until then. Each rank believes to be on a host of its own, so that NCCL talks over sockets,
as Sparks without RDMA do. Needs root, for a /dev/shm of each.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cuda import page
from benchmarks.cuda.card import count, seconds_until
from benchmarks.cuda.cases import CASES, command
from benchmarks.cuda.faults import STREAMS, streams
from benchmarks.cuda.server import MODEL, PORT, Environment, Server
from lockstep.onhost.core.config import HostConfig
from lockstep.onhost.core.layout import Paths
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.facts import link
from lockstep.onhost.switching.wedge_watch import WedgeWatch

_MASTER_PORT = PORT + 100
_CASE = replace(CASES["qwen3-0.6b"], flags=("--enforce-eager", "--tensor-parallel-size", "2"))
# A start that hangs would take the time of all faults.
_START_S = 180
# An engine that sees its other rank end says so within seconds, or waits for it without a bound.
LIMIT_S = 30.0
# For vLLM and NCCL, ranks that share a /dev/shm are on the same host.
_HOST = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs shm /dev/shm && exec "$0" "$@"')
# The variables of a member's `environment`. The others make NCCL see two hosts, and keep vLLM
# from memory that only the GPUs of one host share.
_VARIABLES = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "VLLM_HOST_IP": "127.0.0.1",
    "NCCL_MNNVL_ENABLE": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}

#: Fault → rank, a word of the process's name ("" for the main one), signal.
FAULTS: Mapping[str, tuple[int, str, int]] = {
    "rank 1: its worker is killed": (1, "Worker", signal.SIGKILL),
    "rank 1: its main process is killed": (1, "", signal.SIGKILL),
    "rank 1: its worker is frozen": (1, "Worker", signal.SIGSTOP),
    "rank 1 is asked to end": (1, "", signal.SIGTERM),
    "rank 0: its engine process is killed": (0, "EngineCor", signal.SIGKILL),
    "rank 0: its worker is killed": (0, "Worker", signal.SIGKILL),
    "rank 0: its worker is frozen": (0, "Worker", signal.SIGSTOP),
    "nothing, until both are stopped": (0, "", 0),
}


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Measure each fault on a new pair of ranks with open streams."""
    if count() < 2 or os.geteuid() != 0:
        yield "left out", "this machine has one GPU" if count() < 2 else "it needs root"
        return
    for name, (rank, word, act) in FAULTS.items():
        with _ranks(environment, folders) as (servers, ready):
            if "failed" in ready:
                # The next fault's start would fail as well.
                yield name, ready
                return
            yield name, {**ready, **_fault(servers, rank, word, act)}


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
    keys = ENGINES["vllm"].rank_recipe_keys(
        rank=rank, size=2, master="127.0.0.1", port=_MASTER_PORT, copies=1
    )
    flags: list[str] = []
    for key, value in keys.items():
        if value is not None:
            flags += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    own = replace(environment, card=replace(environment.card, index=rank))
    rank_variables = {"CUDA_VISIBLE_DEVICES": str(rank), "NCCL_HOSTID": f"rank-{rank}"}
    variables = {**variables, **_VARIABLES, **rank_variables}
    server = Server(own, f"rank-{rank}", (*words, *flags), variables, prefix=_HOST)
    server.model = replace(server.model, start_timeout_s=_START_S)
    return server


def _fault(servers: list[Server], rank: int, word: str, act: int) -> dict[str, Any]:
    """Observe the ends and messages that come by themselves within `LIMIT_S`, then stop both."""
    first, hit = servers[0], servers[rank]
    network = link.nccl_network_in_log("\n".join(first.lines()))
    ends = streams(first)
    watch = WedgeWatch(HostConfig("here", {MODEL: first.model}), Paths(), token_wait_s=5.0)
    figures: dict[str, Any] = {"network": network, "before": watch.wedge_reason(first.model)}
    if act:
        pid = hit.part(word) if word else hit.process.pid
        began = time.monotonic()
        os.kill(pid, act)
        figures |= _ends(servers, ends, began)
        figures |= {"health": first.health(), "streams": sorted(set(ends)) or ["open"]}
        # The first reading may still see counters that moved before the fault.
        watch.wedge_reason(first.model)
        figures["watch"] = watch.wedge_reason(first.model)
    with ThreadPoolExecutor(len(servers)) as pool:
        figures["stopped"] = list(pool.map(Server.stop, servers))
    return figures


def _ends(servers: list[Server], streams: list[str], began: float) -> dict[str, float | None]:
    """Seconds from `began` until each end that a client, a unit or a card shows."""
    first = servers[0]
    ends: dict[str, Callable[[], bool]] = {
        "health_s": lambda: first.health() != "200",
        "streams_s": lambda: len(streams) == STREAMS,
    }
    for number, server in enumerate(servers):
        ends[f"main_{number}_s"] = server.has_ended
        ends[f"memory_{number}_s"] = server.memory_back
    return seconds_until(ends, began, LIMIT_S)


def text(results: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    if "left out" in results:
        return f"## Two ranks\n\nNot measured: {results['left out']}."
    names = ("main_0_s", "main_1_s", "memory_0_s", "memory_1_s", "health_s", "streams_s")
    rows = [
        [name, *page.row(figures, names), figures.get("health", figures.get("failed", "")),
         figures.get("watch") or "nothing", "; ".join(figures.get("streams", ())),
         *(", ".join(page.row(stop, ("memory_s", "main_s"))) for stop in figures.get("stopped", ()))
         ]
        for name, figures in results.items()
    ]  # fmt: skip
    heads = (
        *("fault", "main process 0 gone, s", "1", "memory 0 back, s", "1"),
        *("/health not 200, s", "all streams ended, s", "/health", "the wedge watch says"),
        *("streams", "rank 0 stopped: memory back, main process gone, s", "rank 1"),
    )
    return "\n\n".join(["## Two ranks", page.table(heads, rows)])
