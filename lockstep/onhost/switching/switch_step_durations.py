"""The duration of each step of a switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lockstep.onhost.core import clock, event_lines
from lockstep.onhost.systemd import units


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

    def add_start_durations(self, unit: str, journal: list[str]) -> str | None:
        """Add a start's own steps, as seen by systemd and the readiness check.

        Args:
            unit: The unit that has started.
            journal: Its last lines.

        Returns:
            The answer to the test question (`answered with 16 tokens in 0.3 s (57.0 tok/s)`), or
            None if the journal has none.
        """
        took = units.gate_and_load_seconds(unit)
        if took is not None:
            self.seconds["gate"], self.seconds["load"] = took
        events = map(event_lines.read_event, reversed(journal))
        return next((event for event in events if event_lines.kind_of(event) == "answer"), None)

    def __str__(self) -> str:
        return ", ".join(f"{name} {_duration_text(took)}" for name, took in self.seconds.items())


def _duration_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else event_lines.duration(seconds)
