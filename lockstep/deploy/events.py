"""What a deploy says to the program that started it: lines of JSON, one event each.

They stand among all else that it prints, in their order, where `VARIABLE` is set; `MARK` tells them
from that. `Ready` and `Asks` wait for an answer, a line of JSON on standard input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.deploy.summary import HostOutcome

VARIABLE = "LOCKSTEP_EVENTS"
#: As RFC 7464 has it: what no program prints.
MARK = "\x1e"


@dataclass(frozen=True)
class Started:
    """The run has begun on these hosts; nothing is known of them yet."""

    hosts: Sequence[str]


@dataclass(frozen=True)
class Refused:
    """The run ends before the first change; findings and reason, in words."""

    text: str


@dataclass(frozen=True)
class Empty:
    """A host on which nothing of Lockstep is.

    Attributes:
        host: The host.
        known: Whether it was deployed to before, from here: it was wiped.
        lines: What it gets from where, and what is lost, a line each.
    """

    host: str
    known: bool
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Interrupts:
    """What this run will stop on a host.

    Attributes:
        host: The host.
        model: The hot model, as people call it; its unit, where the inventory has it no more.
        again: Whether it starts again by itself.
        requests: Requests under way in it, None where that cannot be told.
    """

    host: str
    model: str
    again: bool
    requests: int | None = None


@dataclass(frozen=True)
class Ready:
    """All is checked; the first change comes if this is answered by true."""


@dataclass(frozen=True)
class Asks:
    """A password is wanted, which is the answer; null where nobody gives one."""

    prompt: str


@dataclass(frozen=True)
class Step:
    """An operation begins: "Weights | Fetch and verify weights"."""

    name: str


@dataclass(frozen=True)
class Done:
    """An operation has ended on all hosts: on which of them it changed something, or failed."""

    name: str
    changed: Sequence[str] = ()
    failed: Sequence[str] = ()


@dataclass(frozen=True)
class Over:
    """The end of the run.

    Attributes:
        outcomes: What became of each host.
        left_out: Hosts of the inventory that were not part of it.
        would: Of a run that only looks: operation → hosts that it would change.
    """

    outcomes: Sequence[HostOutcome]
    left_out: Sequence[str] = ()
    would: Mapping[str, Sequence[str]] = field(default_factory=dict)


Event = Started | Refused | Empty | Interrupts | Ready | Asks | Step | Done | Over
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Started, Refused, Empty, Interrupts, Ready, Asks, Step, Done, Over)
}


def line(event: Event) -> str:
    """An event as a line, without its end."""
    return MARK + json.dumps({"event": type(event).__name__, **asdict(event)}, default=list)


def read(text: str) -> Event:
    """The event of a line that begins with `MARK`."""
    found = json.loads(text.removeprefix(MARK))
    kind = found.pop("event")
    if kind == Over.__name__:
        found["outcomes"] = [HostOutcome(**each) for each in found["outcomes"]]
    event: Event = _KINDS[kind](**found)
    return event
