"""The two clocks of a measurement: one that only runs forward, and the one on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Where times come from; tests give clocks of their own.

    Attributes:
        now: Seconds that only run forward; every duration is a difference of these.
        wall: Unix time; read beside `now` to notice a jump or a suspended machine.
    """

    now: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time
