"""A GPU of this machine, and how much of its memory is in use."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.onhost.core import unified_memory

_ASKED = "name,driver_version,compute_cap,memory.used"
# The total as an engine sees it: less than nvidia-smi's, which counts the driver's own memory.
_TOTAL = "import torch; print(torch.cuda.get_device_properties(0).total_memory)"


@dataclass(frozen=True)
class Card:
    """One GPU.

    Attributes:
        name: The name that nvidia-smi gives.
        driver: Version of the driver.
        compute: Compute capability ("9.0", "12.1").
        total_gib: Memory that the engines share out, by PyTorch.
        has_unified_memory: Whether the card has no memory of its own, as in a Spark.
        index: Number of the GPU on this machine, from 0.
    """

    name: str
    driver: str
    compute: str
    total_gib: float
    has_unified_memory: bool
    index: int = 0


def count() -> int:
    """Count the GPUs of this machine."""
    return len(_command_output(["nvidia-smi", "--list-gpus"]).splitlines())


def card(python: str) -> Card:
    """The first GPU of this machine.

    Args:
        python: Of an environment with PyTorch.

    Raises:
        SystemExit: there is none, or no driver.
    """
    name, driver, compute, used_memory = (word.strip() for word in _smi(_ASKED, 0).split(","))
    total = int(_command_output([python, "-c", _TOTAL]).split()[-1]) / 2**30
    return Card(
        name, driver, compute, total, has_unified_memory=not used_memory.replace(".", "").isdigit()
    )


def used_gib(of: Card) -> float:
    """Memory in use now: the card's own, or MemTotal less MemAvailable where it is unified."""
    if of.has_unified_memory:
        memory = unified_memory.memory()
        return memory.total - memory.available
    return float(_smi("memory.used", of.index)) / 1024


def back(of: Card, before_gib: float) -> bool:
    """Tell whether no more than `before_gib` is in use.

    A quarter GiB more counts as back: the driver keeps some for itself.
    """
    return used_gib(of) <= before_gib + 0.25


def back_after(of: Card, before_gib: float, began: float, limit_s: float = 60.0) -> float | None:
    """Seconds from `began` (monotonic) until `back` is true; None when that takes longer."""
    return wait_until(lambda: back(of, before_gib), began, limit_s)


def wait_until(is_done: Callable[[], bool], began: float, limit_s: float) -> float | None:
    """Seconds from `began` until `is_done` returns true; None after more than `limit_s`."""
    while not is_done():
        if time.monotonic() - began > limit_s:
            return None
        time.sleep(0.02)
    return time.monotonic() - began


def seconds_until(
    ends: Mapping[str, Callable[[], bool]], began: float, limit_s: float
) -> dict[str, float | None]:
    """Seconds from `began` until each of several ends came; they may come in any order.

    An end that takes longer than `limit_s` is None.
    """
    seconds_by_end: dict[str, float | None] = dict.fromkeys(ends)
    while True:
        for name, is_done in ends.items():
            if seconds_by_end[name] is None and is_done():
                seconds_by_end[name] = time.monotonic() - began
        if None not in seconds_by_end.values() or time.monotonic() - began > limit_s:
            return seconds_by_end
        time.sleep(0.02)


def _smi(query: str, index: int) -> str:
    argv = ["nvidia-smi", f"--id={index}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    return _command_output(argv).splitlines()[0]


def _command_output(argv: list[str]) -> str:
    try:
        result = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"no NVIDIA GPU to measure on: {' '.join(argv)}: {error}") from error
    return result.stdout
