"""The last switches of this host, with person, model and outcome, readable for everybody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic_files, errors, event_lines, layout
from lockstep.onhost.records import audit_log, json_records

#: A page shows no more.
MOST_KEPT = 20


@dataclass(frozen=True)
class SwitchRecord:
    """One switch; `at` is its end (Unix time), `code` as of switch.sh, `words` its last words.

    With `hot_already` the model was hot before, so nothing was started.
    """

    at: float
    took_s: float
    person: str
    model: str
    code: int
    words: str
    hot_already: bool = False


@dataclass
class SwitchTelling:
    """Output of a switch: called with each line for the operator, and keeps the last."""

    last_line: str = ""
    hot_already: bool = False

    def __call__(self, line: str) -> None:
        self.last_line = line.strip()
        event_lines.say(line)


def load(paths: layout.Paths) -> list[SwitchRecord]:
    """Return the switches, newest first; empty without a readable record."""
    return json_records.load(list[SwitchRecord], paths.switches) or []


def usual_seconds_by_model(switch_records: Iterable[SwitchRecord]) -> dict[str, float]:
    """Return for each model the usual seconds of a switch to it on this host, if recorded.

    It is the median of those that started it and went well.
    """
    import statistics  # Programs on a host start without it.

    took: dict[str, list[float]] = {}
    for record in switch_records:
        if record.code == 0 and not record.hot_already:
            took.setdefault(record.model, []).append(record.took_s)
    return {model: statistics.median(seconds) for model, seconds in took.items()}


def add_switch_record(paths: layout.Paths, new_record: SwitchRecord) -> None:
    """Add one record; raise OSError on failure."""
    newest = [asdict(record) for record in (new_record, *load(paths))][:MOST_KEPT]
    atomic_files.write_json(paths.switches, newest)


def switch_and_record(
    paths: layout.Paths, person: str, model: str, switch: Callable[[SwitchTelling], int]
) -> int:
    """Make a switch for a person and record its outcome; return its exit code."""
    began, say = time.time(), SwitchTelling()

    def note(code: int, words: str) -> None:
        now = time.time()
        # A finished switch must not fail because of its record.
        with suppress(OSError):
            took = round(now - began, 1)
            add_switch_record(
                paths, SwitchRecord(now, took, person, model, code, words, say.hot_already)
            )
        audit_log.add_audit_line(person, f"switch to {model}", words or f"it ended with {code}")

    try:
        code = switch(say)
    except errors.Problem as problem:
        # Of two simultaneous switches, only the one that goes on is recorded.
        if problem.code != errors.EXIT_LOCKED:
            note(problem.code, str(problem))
        raise
    note(code, say.last_line)
    return code
