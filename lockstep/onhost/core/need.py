"""What an engine needs of a host's unified memory before it starts, as the engine itself counts.

The one definition: plan and preflight use it on the operator's machine, the gate, the check before
a switch and the status on the host. each module of `engines` says where its figures come from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """GiB for one target.

    `gib` must be available on any host. `share` is what the engine takes at most: of the host's own
    MemTotal where `of_total`, and then all of it must be available; else of what is available when
    it looks. `beside_gib` is not of its share: its processes and the CUDA context take that before
    it looks, and some engines more once they serve.
    """

    gib: float
    share: float = 0.0
    of_total: bool = False
    beside_gib: float = 0.0

    def available(self, total: float) -> float:
        """The least MemAvailable with which it starts on a host with ``total`` GiB of MemTotal."""
        return max(self.gib, self.held(total)) if self.of_total else self.gib

    def held(self, total: float) -> float:
        """The most that it can hold while it serves."""
        return self.share * total + self.beside_gib if self.share else self.gib
