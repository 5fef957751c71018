"""The progress of an engine's start, read from its log, in a few words for a phone."""

from __future__ import annotations

import re

from lockstep.onhost import engines
from lockstep.onhost.core import event_lines

# Errors of a unit's programs, which have their names (`errors.run_main`).
_OWN_ERROR = re.compile(r"lockstep (?:gate|ready|webui): (?P<text>.+)")
_PHASES = tuple(phase for engine in engines.ENGINES.values() for phase in engine.phases)
_ERROR = re.compile(r"\bERROR\b|[Ee]rror[:\s]|FATAL|Killed|refused")


def own_line(line: str) -> str | None:
    """Return the event or the error in a line of a unit's journal that is ours, or None."""
    event = event_lines.read_event(line.rstrip("\n"))
    if event_lines.kind_of(event):
        return event
    match = _OWN_ERROR.search(line)
    return match["text"] if match else None


def announced_phase(line: str) -> str | None:
    """Return the phase that a line of a unit's journal announces, or None."""
    if own := own_line(line):
        return own
    for pattern, text in _PHASES:
        if match := pattern.search(line):
            return event_lines.EventLine("load", text.format(**match.groupdict()))
    return None


def failure_lines(lines: list[str]) -> list[str]:
    """Return the few last lines of a failed unit that give the reason: our verdict, else errors."""
    verdict = [own for line in lines if (own := own_line(line))][-1:]
    errors = [
        own_line(line) or line for line in lines if _ERROR.search(line) and " WARNING " not in line
    ]
    return list(dict.fromkeys([*errors[-3:], *verdict])) or lines[-5:]
