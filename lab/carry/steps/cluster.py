"""One model over two hosts, each with a GPU: a rank on each, by the product's own cluster."""

from __future__ import annotations

import re
import time

from lab.carry.steps.run import ON_HOST, SWITCH, Figures, Run, StepFailure, figures

#: The members in the order of their ranks.
MEMBERS = ("spark1", "spark2")
WORKER = "$(pgrep -f ^VLLM::Worker)"
#: Lines of the engine's log that say by what NCCL sends.
_NETWORK = r"NET/(Socket|IB)|Using network \w+"


def _gpus(run: Run) -> Figures:
    return {host: run.gpu(host) for host in MEMBERS}


def switch(run: Run) -> Figures:
    """The model of the cluster becomes hot on both hosts."""
    began = time.monotonic()
    output = run.on_host(f"sudo {SWITCH} {run.options.pair}", host=MEMBERS[0])
    seconds = time.monotonic() - began
    last_lines = [line.strip() for line in output.splitlines() if line.strip()][-4:]
    chat = figures(_probe(run, "ask", "chat", run.options.pair))
    if chat["code"] != 200:
        raise StepFailure(f"HTTP {chat['code']}: {chat['text']}", {"said": last_lines})
    return {"seconds": seconds, "said": last_lines, "chat": chat, **_gpus(run)}


def link(run: Run) -> Figures:
    """The words of `lockstep cluster check` on the link, and NCCL's own in the engine's log."""
    output = run.do("lockstep", "cluster", "check", "--inventory", run.options.inventory, ok=(0, 1))
    log = run.on_host("sudo journalctl -b --no-pager -o cat -u 'vllm*'", host=MEMBERS[0])
    words = sorted({match[0] for match in re.finditer(_NETWORK, log)})
    return {"said": [line.strip() for line in output.splitlines() if line.strip()], "nccl": words}


def sense(run: Run) -> Figures:
    """Right answers of the trained model while each host has half of it."""
    began = time.monotonic()
    output = run.on_host(f"{ON_HOST} sense", host=MEMBERS[0])
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-6:]}


def rank_killed(run: Run) -> Figures:
    """The worker of the second rank is killed; the cluster is whole again by itself."""
    memory_before = _gpus(run)
    watch = run.begin_probe("back", run.options.pair, "330", "true", host=MEMBERS[0])
    time.sleep(3)
    run.on_host(f"sudo kill -KILL {WORKER}", host=MEMBERS[1])
    found = figures(run.end(watch))
    if found["answered_s"] is None:
        raise StepFailure("no answer came again", found)
    found |= {host: run.on_host(f"{SWITCH} status", (0, 1, 3), host=host).splitlines()[:4]
              for host in MEMBERS}  # fmt: skip
    return {"before": memory_before, **found, "after": _gpus(run)}


def none(run: Run) -> Figures:
    """The cluster ends; the memory of both GPUs is back."""
    began = time.monotonic()
    run.on_host(f"sudo {SWITCH} none", host=MEMBERS[0])
    return {"seconds": time.monotonic() - began, **_gpus(run)}


def _probe(run: Run, *words: str) -> str:
    return run.end(run.begin_probe(*words, host=MEMBERS[0]))
