"""Lines for the readers of a program's output, and what such a line means to other programs.

Programs decide by the kind of an event, never by its text. Where programs read, an event is the
line `lockstep KIND: TEXT`; people get the text. A line without a known kind is text for people.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

#: Set in the environment of a program whose output is read by another one of ours.
READER = "LOCKSTEP_EVENTS"
#: Steps of a switch, in their order, and its ends.
PHASES = ("check", "stop", "gate", "load", "test_question", "done", "failed")
#: All kinds: `answer` is that to the test question, `why` a reason of the failure before it,
#: `took` has the time of each step, `still` tells only that time goes on, `news` is also shown at
#: the end of a deploy, and `deploy` a message of `deploy.events`.
KINDS = (*PHASES, "answer", "why", "took", "still", "news", "deploy")
_FORM = re.compile(rf"lockstep ({'|'.join(KINDS)}): (.*)")

_audience = {"left": False}


class EventLine(str):
    """A line for people that also has one of `KINDS`."""

    def __new__(cls, kind: str, text: str) -> EventLine:
        """Make the line `text` of a kind."""
        event = super().__new__(cls, text)
        event.kind = kind
        return event

    kind: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: `dataclasses.asdict` copies lines."""
        return EventLine, (self.kind, str(self))


def kind_of(line: str) -> str:
    """Return the kind of an event, "" for another line."""
    return line.kind if isinstance(line, EventLine) else ""


def line_for_programs(line: str) -> str:
    """Return a line as other programs read it."""
    return f"lockstep {line.kind}: {line}" if isinstance(line, EventLine) else line


def read_event(line: str) -> str:
    """Return the event of a line in its form, any other line unchanged."""
    match = _FORM.fullmatch(line)
    return EventLine(match[1], match[2]) if match else line


def text_for_people(line: str) -> str:
    """Return a line without the mark of programs, which may stand behind the name of a host."""
    return _FORM.sub(r"\2", line)


def has_event_reader() -> bool:
    """Tell whether another program of ours reads the output of this one."""
    return READER in os.environ


def say(line: str) -> None:
    """Print one line at once; a reader that went away (closed terminal) is no error.

    Events have their form only where one of our programs reads.
    """
    try:
        print(line_for_programs(line) if has_event_reader() else line, flush=True)
    except OSError:
        _audience["left"] = True
        # Without this, Python tries again at exit and ends with status 120.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def has_lost_reader() -> bool:
    """Tell whether an earlier `say` found that its reader had gone away."""
    return _audience["left"]


def duration(seconds: float) -> str:
    """Format a length of time for people: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    total = int(seconds)
    if total < 100:
        return f"{total} s"
    minutes = total // 60
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
