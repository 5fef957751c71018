"""The clock by which the programs of a host wait: the only place that a test has to replace."""

from __future__ import annotations

import time


def now() -> float:
    """Return the seconds of a clock that only goes forward."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait for so many seconds."""
    time.sleep(seconds)
