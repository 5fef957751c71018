"""The progress of an engine's start, read from its log, in a few words for a phone."""

from __future__ import annotations

import re

from lockstep.onhost import engines

_OURS = re.compile(r"lockstep (?:gate|ready|roles|webui): (?P<text>.+)")
_PHASES = (
    (_OURS, "{text}"),
    *(phase for engine in engines.ENGINES.values() for phase in engine.phases),
)
_ERROR = re.compile(r"\bERROR\b|[Ee]rror[:\s]|FATAL|Killed|refused")


def phase(line: str) -> str | None:
    """The phase that a line of the engine's log announces, or None."""
    for pattern, text in _PHASES:
        if match := pattern.search(line):
            return text.format(**match.groupdict())
    return None


def reason(lines: list[str]) -> list[str]:
    """Of a failed unit's last lines, the few that say why: our own verdict, else the errors."""
    verdict = [line for line in lines if _OURS.search(line)][-1:]
    errors = [line for line in lines if _ERROR.search(line) and " WARNING " not in line]
    return list(dict.fromkeys([*errors[-3:], *verdict])) or lines[-5:]
