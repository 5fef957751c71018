"""Every suite by its name."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.bench.run import Suite
from lockstep.bench.speed import concurrency, decode, prefill, speculation

SUITES: Mapping[str, Suite] = {
    "decode": decode,
    "prefill": prefill,
    "concurrency": concurrency,
    "speculation": speculation,
}
#: What runs where none is named.
DEFAULT = tuple(SUITES)
