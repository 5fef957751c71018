"""The duration of each step of a switch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.onhost.core import clock, output
from lockstep.onhost.systemd import units

_TEST_ANSWER = re.compile(
    r"lockstep ready: \S+ answered with (?P<what>.+) in (?P<seconds>[\d.]+) s"
    r"(?: \((?P<rate>[\d.]+ tok/s)\))?"
)


class Steps:
    """Seconds by step, in the order in which they began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time_step(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`."""
        began = clock.now()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + clock.now() - began

    def add_start(self, unit: str, journal: list[str]) -> str | None:
        """Add a start's own steps, as seen by systemd and the readiness check.

        Args:
            unit: The unit that has started.
            journal: Its last lines.

        Returns:
            The test question's result (`57.0 tok/s`, `2 vectors of 1024 numbers`), or None if the
            journal has none.
        """
        took = units.start_times(unit)
        if took is not None:
            self.seconds["gate"], self.seconds["load"] = took
        match = next(filter(None, map(_TEST_ANSWER.search, reversed(journal))), None)
        if match is None:
            return None
        self.seconds["test question"] = float(match["seconds"])
        if "load" in self.seconds:
            self.seconds["load"] = max(0.0, self.seconds["load"] - self.seconds["test question"])
        return match["rate"] or match["what"]

    def __str__(self) -> str:
        return ", ".join(f"{name} {_length(took)}" for name, took in self.seconds.items())


def _length(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else output.duration(seconds)
