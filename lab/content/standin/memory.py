"""Takes unified memory the way the stand-in Sparks account for it, and counts as the engines do."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import uuid
from pathlib import Path
from typing import TextIO

from .arguments import Serving

FOLDER = Path("/run/unified-memory")
#: MemTotal of a DGX Spark in GiB (127,600,000 kB).
TOTAL_GIB = 121.7
#: Taken by an engine's processes and CUDA context before it measures (llamastash/llamastash#81).
START_GIB = 2.7
#: Taken by a serving vLLM beyond its share: CUDA context and graphs (vLLM 0.26.0 on an H200).
BEYOND_GIB = 0.9
#: SGLang's cache for images (SGLANG_VLM_CACHE_SIZE_MB of 0.5.23).
IMAGES_GIB = 100 / 1024
#: Size of the real weights; the files of the lab have a few megabytes.
WEIGHTS_GIB = {
    "Mistral-Small-4-119B-2603-NVFP4": 65.94,
    "Mistral-Small-4-119B-2603-eagle": 0.37,
}


def generating() -> None:
    """Say that the GPU is at work now; nvidia-smi on the host looks at the file's time."""
    mark = FOLDER / "generating"
    with contextlib.suppress(PermissionError):
        try:
            os.utime(mark)
        except FileNotFoundError:
            if FOLDER.is_dir():
                mark.touch()
                # Engines of several accounts touch the file.
                mark.chmod(0o666)


def freeze_host() -> None:
    """Have the lab cut this host's power, and wait for it."""
    (FOLDER / "host-frozen").touch()
    signal.pause()


def available_gib() -> float | None:
    """MemAvailable, or ``None`` on a machine that does not look like a Spark."""
    return _figure("MemAvailable")


def free_gib() -> float:
    """MemFree; the whole of a Spark on a machine that does not look like one."""
    free_memory_gib = _figure("MemFree")
    return TOTAL_GIB if free_memory_gib is None else free_memory_gib


def _figure(name: str) -> float | None:
    figures = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, amount = line.partition(":")
        figures[key] = int(amount.split()[0]) / 1024**2
    return figures[name] if figures["MemTotal"] > 100 else None


def held_gib(serving: Serving, usable_gib: float) -> float:
    """GiB that an engine holds which found so much available: all that its start was promised."""
    if serving.engine == "vllm":
        return START_GIB + serving.memory_fraction * TOTAL_GIB + BEYOND_GIB
    return START_GIB + serving.memory_fraction * usable_gib


def refused_at_start(serving: Serving, usable_gib: float) -> str | None:
    """vLLM's last line where its share of all memory is not there; SGLang loads first."""
    required_gib = serving.memory_fraction * TOTAL_GIB
    if serving.engine == "sglang" or usable_gib >= required_gib:
        return None
    return (
        f"ValueError: Free memory on device cuda:0 ({usable_gib:.2f}/{TOTAL_GIB} GiB) on startup "
        "is "
        f"less than desired GPU memory utilization ({serving.memory_fraction}, "
        f"{required_gib:.2f} GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )


def refused_when_loaded(serving: Serving, usable_gib: float) -> str | None:
    """SGLang's last line where its share of what it found does not hold what it loaded."""
    spare_gib = usable_gib - weights(serving) / serving.hosts
    share = serving.memory_fraction
    if serving.engine == "vllm" or spare_gib - usable_gib * (1 - share) - IMAGES_GIB > 0:
        return None
    least = 1 - spare_gib / usable_gib
    return (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={share}. Raise --mem-fraction-static above "
        f"{math.ceil(least * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
        "If using speculative decoding, draft weights are now counted."
    )


def weights(serving: Serving) -> float:
    """GiB of the real weights of model and draft; 0 for one that is not a stand-in's."""
    return sum(
        gib
        for path in (serving.model, serving.draft or "")
        for name, gib in WEIGHTS_GIB.items()
        if name in path
    )


class Holding:
    """Memory that this process has; given back when it ends, or so much later as asked."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        if FOLDER.is_dir():
            self._file = (FOLDER / f"standin-{uuid.uuid4().hex}").open("w+")
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def resize(self, gib: float, lingers: float, read: float) -> None:
        """Have so many GiB from now on, and keep them for so many seconds after the end.

        `read` is how many GiB have come from the disk so far, through the page cache.
        """
        if self._file is None:
            return
        self._file.seek(0)
        self._file.write(f"{gib:.2f} {lingers:.1f} {read:.2f}\n")
        self._file.truncate()
        self._file.flush()
