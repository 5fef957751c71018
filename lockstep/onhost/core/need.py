"""What an engine needs of a host's unified memory before it starts, as the engine itself counts.

The one definition: plan, fit and preflight use it on the operator's machine, the gate, the check
before a switch and the status on the host. The memory floor is part of it, so that nothing is
admitted that the floor then ends. Each module of `engines` says where its figures come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The kernel counts in KiB: as much less than a tenth of a GiB is that tenth.
_KIB = 2 / 2**20


@dataclass(frozen=True)
class Need:
    """GiB for one target.

    `gib` must be available on any host. `share` is what the engine takes at most: of the host's own
    MemTotal where `of_total`, and then all of it must be available; else of what is available when
    it looks. `beside_gib` is not of its share: its processes and the CUDA context take that before
    it looks, and some engines more once they serve. `floor_gib` is the MemAvailable below which the
    memory floor ends it: so much must be left when it has taken all of that.
    """

    gib: float
    share: float = 0.0
    of_total: bool = False
    beside_gib: float = 0.0
    floor_gib: float = 0.0

    def available(self, total: float) -> float:
        """The least MemAvailable to start with on a host with ``total`` GiB of MemTotal.

        With less it does not start, or the memory floor ends it.
        """
        if self.of_total:
            return max(self.gib, self.held(total)) + self.floor_gib
        if not self.share:
            return self.gib + self.floor_gib
        # A share of what it finds leaves the other part, whatever that is.
        other = 1 - self.share
        left_from = self.beside_gib + (self.floor_gib / other if other > 0 else total)
        return max(self.gib, left_from)

    def held(self, total: float) -> float:
        """The most that it can hold while it serves."""
        return self.share * total + self.beside_gib if self.share else self.gib


def rounded_up(gib: float) -> str:
    """A need in GiB with one decimal, so that what is short of it never looks like enough."""
    return f"{math.ceil((gib - _KIB) * 10) / 10:.1f}"


def rounded_down(gib: float) -> str:
    """What is there beside a need, in GiB with one decimal."""
    return f"{math.floor((gib + _KIB) * 10) / 10:.1f}"
