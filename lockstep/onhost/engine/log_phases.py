"""The progress of an engine's start, read from its log, in a few words for a phone."""

from __future__ import annotations

import re

from lockstep.onhost import engines

_OUR_LINE = re.compile(r"lockstep (?:gate|ready|roles|webui): (?P<text>.+)")
_PHASES = (
    (_OUR_LINE, "{text}"),
    *(phase for engine in engines.ENGINES.values() for phase in engine.phases),
)
_ERROR = re.compile(r"\bERROR\b|[Ee]rror[:\s]|FATAL|Killed|refused")


def announced_phase(line: str) -> str | None:
    """Return the phase that a line of the engine's log announces, or None."""
    for pattern, text in _PHASES:
        if match := pattern.search(line):
            return text.format(**match.groupdict())
    return None


def failure_lines(lines: list[str]) -> list[str]:
    """Return the few last lines of a failed unit that give the reason: our verdict, else errors."""
    verdict = [line for line in lines if _OUR_LINE.search(line)][-1:]
    errors = [line for line in lines if _ERROR.search(line) and " WARNING " not in line]
    return list(dict.fromkeys([*errors[-3:], *verdict])) or lines[-5:]
