"""Faults of engines, of the GPU, of memory and of the power."""

from __future__ import annotations

import time

from lab.carry.steps.run import ENGINE, SWITCH, VENV, Figures, Run, StepFailure, kill

#: Takes GIB of the GPU's memory by plain allocations and keeps them.
HOLD = """
import sys, time, torch
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(int(sys.argv[1]))]
torch.cuda.synchronize()
print("held", flush=True)
time.sleep(600)
"""


def _fault(run: Run, command: str, limit_s: float) -> Figures:
    run.make_hot(run.options.model)
    memory_before = run.gpu().get("gpu_mib")
    found = run.probe("back", run.options.model, str(limit_s), command)
    return {**found, "before_mib": memory_before, **run.gpu()}


def engine_killed(run: Run) -> Figures:
    """The engine's process is killed while it serves."""
    return _fault(run, f"kill -KILL {ENGINE}", 150)


def frozen(run: Run) -> Figures:
    """The engine's process is stopped by SIGSTOP while it rests; the wedge watch acts."""
    found = _fault(run, f"kill -STOP {ENGINE}", 560)
    log = run.on_host("sudo journalctl -u lockstep-wedge -b --no-pager -o cat | tail -n 6")
    return {**found, "wedge": log.strip().splitlines()}


def gpu_full(run: Run) -> Figures:
    """Another process holds most of the GPU while the model starts."""
    run.make_hot(run.options.second)
    unit = "sudo systemd-run --unit=hold --collect --pipe -q"
    hold_gib = held_gib(run)
    hold = run.begin(f"{unit} {VENV} - {hold_gib}", HOLD)
    try:
        run.until(lambda: hold.poll() is not None or run.gpu()["gpu_mib"] > hold_gib * 1000)
        if hold.poll() is not None:
            raise StepFailure(f"nobody could take so much: {run.end(hold)[-300:]}")
        began = time.monotonic()
        output = run.on_host(f"sudo {SWITCH} {run.options.model}", (0, 1, 3, 4))
        seconds = time.monotonic() - began
        status, memory = run.status(), run.gpu()
    finally:
        run.on_host("sudo systemctl stop hold", (0, 1, 5))
        if hold.poll() is None:
            kill(hold)
    freed_s = run.until(lambda: run.gpu()["gpu_mib"] < hold_gib * 1000)
    return {
        "seconds": seconds, "said": output.strip().splitlines()[-10:], "hot": status["hot"],
        "beside it": memory, "freed_s": freed_s, "again": run.switch(run.options.model)["seconds"],
    }  # fmt: skip


def held_gib(run: Run) -> int:
    """GiB that the other process takes: 0.72 of the GPU leave room for the second model alone."""
    if run.options.hold:
        return int(run.options.hold)
    total_mib = run.on_host("nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits")
    return int(int(total_mib) * 0.72 / 1024)


def _cut(run: Run) -> Figures:
    began = time.monotonic()
    run.do("lockstep", "lab", "cycle", run.host)
    cycled_s = time.monotonic() - began
    run.on_host("sudo systemctl is-system-running --wait", (0, 1))
    found = {"cycled_s": cycled_s, "running_s": time.monotonic() - began, **run.gpu()}
    status = run.status()
    found |= {"hot": status["hot"], "problems": status["problems"]}
    if status["hot"] is not None:
        raise StepFailure("a model is hot after a power cut", found)
    return found


def cut_loading(run: Run) -> Figures:
    """The power fails while the model loads."""
    run.on_host(f"sudo {SWITCH} none")
    off = run.gpu()
    switch = run.begin(f"sudo {SWITCH} {run.options.model}")
    run.until(run.engine_lives)
    if not run.options.here:
        run.until(lambda: run.gpu()["gpu_mib"] > 400)
    loading = run.gpu()
    cut = _cut(run)
    outcome = run.end(switch).strip().splitlines()[-2:]
    return {"off": off, "loading": loading, **cut, "switch_said": outcome}


def cut_serving(run: Run) -> Figures:
    """The power fails while the model answers; the model comes back on request."""
    run.make_hot(run.options.model)
    clients = run.begin_probe("busy", run.options.model, "60")
    time.sleep(2)
    serving = run.gpu()
    cut = _cut(run)
    run.end(clients)
    return {"serving": serving, **cut, "again": run.switch(run.options.model)}


def memory_minimum(run: Run) -> Figures:
    """A program takes real memory until the memory watch ends the engine."""
    run.make_hot(run.options.model)
    # The lab shows a Spark's figures here; this machine's own are below it.
    run.on_host("sudo umount /proc/meminfo; sudo systemctl restart lockstep-memory")
    found = run.probe("fill", "3.2", "150")
    log = run.on_host("sudo journalctl -u lockstep-memory -b --no-pager -o cat | tail -n 4")
    run.until(lambda: run.status()["switching"] is None)
    return {**found, "memory_watch": log.strip().splitlines(), **run.status(), **run.gpu()}
