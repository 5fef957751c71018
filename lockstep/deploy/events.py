"""The messages of a deploy to the program that started it: events whose text is JSON.

They stand among the other output of the deploy, in order. `Ready` and `Asks` wait for an answer, a
line of JSON on standard input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.deploy.summary import HostOutcome
from lockstep.onhost.core import event_lines


@dataclass(frozen=True)
class RunStart:
    """The run has begun on these hosts, of which nothing is known yet."""

    hosts: Sequence[str]


@dataclass(frozen=True)
class RunRefusal:
    """The run ends before the first change; `text` has findings and reason."""

    text: str


@dataclass(frozen=True)
class Empty:
    """A host without anything of Lockstep.

    Attributes:
        host: The host.
        was_deployed: True if an earlier deploy from here reached it, so it was wiped.
        lines: Its new content with the sources, and the losses, a line each.
    """

    host: str
    was_deployed: bool
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Interrupts:
    """A hot model that this run will stop on a host.

    Attributes:
        host: The host.
        model: The hot model's name for people; its unit if the inventory has it no more.
        again: True if it starts again by itself.
        requests: Requests under way in it, or None if unknown.
    """

    host: str
    model: str
    again: bool
    requests: int | None = None


@dataclass(frozen=True)
class Ready:
    """The checks are complete; the first change comes if the answer is true."""


@dataclass(frozen=True)
class Asks:
    """A password is needed, and is the answer; null if nobody gives one."""

    prompt: str


@dataclass(frozen=True)
class StepProgress:
    """The start of an operation, such as "Weights | Fetch and verify weights"."""

    name: str


@dataclass(frozen=True)
class OperationDone:
    """The end of an operation on all hosts, with the changed hosts and the failed ones."""

    name: str
    changed_hosts: Sequence[str] = ()
    failed_hosts: Sequence[str] = ()


@dataclass(frozen=True)
class Over:
    """The end of the run.

    Attributes:
        outcomes: The outcome for each host.
        left_out: Hosts of the inventory that were not part of it.
        would: For a run that only looks, the hosts that each operation would change.
    """

    outcomes: Sequence[HostOutcome]
    left_out: Sequence[str] = ()
    would: Mapping[str, Sequence[str]] = field(default_factory=dict)


Event = (
    RunStart | RunRefusal | Empty | Interrupts | Ready | Asks | StepProgress | OperationDone | Over
)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        RunStart,
        RunRefusal,
        Empty,
        Interrupts,
        Ready,
        Asks,
        StepProgress,
        OperationDone,
        Over,
    )
}


def line(event: Event) -> str:
    """Return an event as a line, without its end."""
    text = json.dumps({"event": type(event).__name__, **asdict(event)}, default=list)
    return event_lines.line_for_programs(event_lines.EventLine("deploy", text))


def read(text: str) -> Event:
    """Return the event of a line's text."""
    fields = json.loads(text)
    kind = fields.pop("event")
    if kind == Over.__name__:
        fields["outcomes"] = [HostOutcome(**outcome) for outcome in fields["outcomes"]]
    event: Event = _KINDS[kind](**fields)
    return event
