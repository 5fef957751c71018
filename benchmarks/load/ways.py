"""The ways of a load that are compared: the device's read-ahead, and words for the engine."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from benchmarks.load.device import KERNEL_READ_AHEAD_KB
from lockstep.onhost.system.disk_read_ahead import RAISED_KIB

LOCKSTEP_READ_AHEAD_KB = RAISED_KIB


@dataclass(frozen=True)
class Way:
    """One way of a load.

    Attributes:
        name: Its name in the results.
        read_ahead_kb: The device's read-ahead while the engine loads.
        words: Further words of the engine's command line.
        engine: The only engine that takes them; all, if empty.
        is_cached: Whether the whole checkpoint is in the page cache before.
    """

    name: str
    read_ahead_kb: int
    words: tuple[str, ...] = ()
    engine: str = ""
    is_cached: bool = False


KERNEL = Way("kernel", KERNEL_READ_AHEAD_KB)
LOCKSTEP = Way("lockstep", LOCKSTEP_READ_AHEAD_KB)
CACHED = Way("cached", LOCKSTEP_READ_AHEAD_KB, is_cached=True)


def parse_way(text: str) -> Way:
    """Parse `[ENGINE:]NAME=KIB[,WORD...]`, for example
    `vllm:eager=128,--safetensors-load-strategy=eager`.
    """
    label, equals, size_and_words = text.partition("=")
    size, *words = size_and_words.split(",")
    engine, _, name = label.rpartition(":")
    if not equals or not name or not size.isdigit() or engine not in ("", "vllm", "llama"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not [ENGINE:]NAME=KIB[,WORD...] with the engine vllm or llama"
        )
    return Way(name, int(size), tuple(words), engine)
