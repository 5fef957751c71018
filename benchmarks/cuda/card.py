"""A GPU of this machine, and how much of its memory is in use."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_ASKED = "name,driver_version,compute_cap,memory.used"
# What an engine takes for the whole: less than nvidia-smi says, which counts what the driver keeps.
_TOTAL = "import torch; print(torch.cuda.get_device_properties(0).total_memory)"


@dataclass(frozen=True)
class Card:
    """One GPU.

    Attributes:
        name: As nvidia-smi says it.
        driver: Version of the driver.
        compute: Compute capability ("9.0", "12.1").
        total_gib: What the engines share out, as PyTorch says it.
        unified: Whether the card has no memory of its own, as in a Spark.
        index: Which one of this machine, from 0.
    """

    name: str
    driver: str
    compute: str
    total_gib: float
    unified: bool
    index: int = 0


def count() -> int:
    """How many GPUs this machine has."""
    return len(_said(["nvidia-smi", "--list-gpus"]).splitlines())


def card(python: str) -> Card:
    """The first GPU of this machine.

    Args:
        python: Of an environment with PyTorch.

    Raises:
        SystemExit: there is none, or no driver.
    """
    name, driver, compute, used = (word.strip() for word in _smi(_ASKED, 0).split(","))
    total = int(_said([python, "-c", _TOTAL]).split()[-1]) / 2**30
    return Card(name, driver, compute, total, unified=not used.replace(".", "").isdigit())


def used_gib(of: Card) -> float:
    """Memory in use now: the card's own, or MemTotal less MemAvailable where it is unified."""
    if of.unified:
        return _meminfo("MemTotal") - _meminfo("MemAvailable")
    return float(_smi("memory.used", of.index)) / 1024


def back(of: Card, before_gib: float) -> bool:
    """Whether no more than `before_gib` is in use.

    A quarter GiB more counts as back: the driver keeps some for itself.
    """
    return used_gib(of) <= before_gib + 0.25


def back_after(of: Card, before_gib: float, began: float, limit_s: float = 60.0) -> float | None:
    """Seconds since `began` (monotonic) until `back`; None: longer."""
    return waited(lambda: back(of, before_gib), began, limit_s)


def waited(done: Callable[[], bool], began: float, limit_s: float) -> float | None:
    """Seconds since `began` until `done` says so; None where it takes longer than `limit_s`."""
    while not done():
        if time.monotonic() - began > limit_s:
            return None
        time.sleep(0.02)
    return time.monotonic() - began


def seconds_until(
    ends: Mapping[str, Callable[[], bool]], began: float, limit_s: float
) -> dict[str, float | None]:
    """Seconds since `began` until each of some ends came, which may come in any order.

    None where one takes longer than `limit_s`.
    """
    found: dict[str, float | None] = dict.fromkeys(ends)
    while True:
        for name, done in ends.items():
            if found[name] is None and done():
                found[name] = time.monotonic() - began
        if None not in found.values() or time.monotonic() - began > limit_s:
            return found
        time.sleep(0.02)


def _smi(asked: str, index: int) -> str:
    argv = ["nvidia-smi", f"--id={index}", f"--query-gpu={asked}", "--format=csv,noheader,nounits"]
    return _said(argv).splitlines()[0]


def _said(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"no NVIDIA GPU to measure on: {' '.join(argv)}: {error}") from error
    return done.stdout


def _meminfo(name: str) -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 2**20
    raise SystemExit(f"/proc/meminfo has no {name}")
