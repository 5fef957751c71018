"""The last switches of this host: who asked for what, and how each ended. Everybody may read it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic, errors, layout, output
from lockstep.onhost.records import audit

#: A page shows no more.
KEPT = 20


@dataclass(frozen=True)
class Ended:
    """One switch; `at` is its end (Unix time), `code` as of switch.sh, `said` its last words.

    `hot_already`: the target was hot before, so nothing was started.
    """

    at: float
    took_s: float
    person: str
    target: str
    code: int
    said: str
    hot_already: bool = False


@dataclass
class Telling:
    """Output of a switch: called with each line for the operator, and keeps the last."""

    said: str = ""
    hot_already: bool = False

    def __call__(self, line: str) -> None:
        self.said = line.strip()
        output.say(line)


def load(paths: layout.Paths) -> list[Ended]:
    """Newest first; none where there is no record that can be read."""
    try:
        return [Ended(**each) for each in json.loads(paths.switches.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def usual_s(ended: Iterable[Ended]) -> dict[str, float]:
    """Target → the time that a switch to it takes on this host (s), where one is on record.

    It is the median of those that started it and went well.
    """
    took: dict[str, list[float]] = {}
    for each in ended:
        if each.code == 0 and not each.hot_already:
            took.setdefault(each.target, []).append(each.took_s)
    return {target: statistics.median(seconds) for target, seconds in took.items()}


def keep(paths: layout.Paths, ended: Ended) -> None:
    """Add one. OSError where that fails."""
    newest = [asdict(each) for each in (ended, *load(paths))][:KEPT]
    atomic.write_json(paths.switches, newest)


def switch_and_record(
    paths: layout.Paths, person: str, target: str, switch: Callable[[Telling], int]
) -> int:
    """Do a switch for a person and keep how it ended; its exit code."""
    began, say = time.time(), Telling()

    def note(code: int, words: str) -> None:
        now = time.time()
        # A switch that is done is not to fail for its record.
        with suppress(OSError):
            took = round(now - began, 1)
            keep(paths, Ended(now, took, person, target, code, words, say.hot_already))
        audit.note(person, f"switch to {target}", words or f"it ended with {code}")

    try:
        code = switch(say)
    except errors.Problem as problem:
        # Of two who ask at once, the one that goes on is kept.
        if problem.code != errors.EXIT_LOCKED:
            note(problem.code, str(problem))
        raise
    note(code, say.said)
    return code
