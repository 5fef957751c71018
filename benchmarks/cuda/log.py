"""The figures of memory in vLLM's own log."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SAYS = {
    "weights_gib": r"Model loading took ([\d.]+) GiB",
    "kv_gib": r"Available KV cache memory: ([\d.]+) GiB",
    "kv_tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "sequences": r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
    "graphs_gib": r"Graph capturing finished in \d+ secs, took ([\d.]+) GiB",
    "block_tokens": r"Setting attention block size to (\d+) tokens",
}
# Kernels that are compiled while requests wait for them.
_COMPILED = re.compile(r"JIT compilation during inference:")


def memory(lines: Sequence[str]) -> dict[str, float]:
    """Each figure that the log gives, the last one of several; GiB, tokens."""
    figures = {}
    for name, pattern in _SAYS.items():
        for line in lines:
            if match := re.search(pattern, line):
                figures[name] = float(match[1].replace(",", ""))
    return figures


def compilation_lines(lines: Sequence[str]) -> list[str]:
    """The lines that tell of a kernel compiled while requests ran."""
    return [line for line in lines if _COMPILED.search(line)]
