"""The unified memory that an engine needs before it starts, as the engine itself counts it.

This is the one definition. Plan, fit and preflight use it on the operator's machine; the gate, the
check before a switch and the status use it on the host. The memory minimum is part of it, so that
no engine is admitted that the memory watch then ends. Each module of `engines` says where its
figures come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The kernel counts in KiB, so a value this much below a tenth of a GiB counts as that tenth.
_KIB = 2 / 2**20


@dataclass(frozen=True)
class Need:
    """GiB that one model needs.

    `gib` must be available on any host. `share` is the most that the engine takes. With `of_total`
    it is a share of the host's MemTotal, and all of it must be available; otherwise it is a share
    of the memory that is available when the engine looks. `beside_gib` comes on top of the share:
    the engine's processes and the CUDA context take it before the engine looks, and some engines
    take more once they serve. `minimum_gib` is the MemAvailable below which the memory watch ends
    the engine: so much must be left when the engine has taken all of that.
    """

    gib: float
    share: float = 0.0
    of_total: bool = False
    beside_gib: float = 0.0
    minimum_gib: float = 0.0

    def available(self, total: float) -> float:
        """Return the least MemAvailable, in GiB, for a start with ``total`` GiB of MemTotal.

        With less, the engine does not start, or the memory watch ends it.
        """
        if self.of_total:
            return max(self.gib, self.serving_peak_gib(total)) + self.minimum_gib
        if not self.share:
            return self.gib + self.minimum_gib
        # A share of the available memory leaves the other part, however much there is.
        other_share = 1 - self.share
        left_from = self.beside_gib + (self.minimum_gib / other_share if other_share > 0 else total)
        return max(self.gib, left_from)

    def serving_peak_gib(self, total: float) -> float:
        """Return the most memory, in GiB, that the engine can hold while it serves."""
        return self.share * total + self.beside_gib if self.share else self.gib


def rounded_up(gib: float) -> str:
    """Format a need in GiB with one decimal, rounded up: too little must never look like enough."""
    return f"{math.ceil((gib - _KIB) * 10) / 10:.1f}"


def rounded_down(gib: float) -> str:
    """Format the memory beside a need in GiB with one decimal, rounded down."""
    return f"{math.floor((gib + _KIB) * 10) / 10:.1f}"
