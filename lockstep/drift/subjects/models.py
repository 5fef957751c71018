"""Drift of what the models answer: nonsense that the daily look found, useless records."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.drift.subjects.kind import Expectation, Kind, Seen
from lockstep.files.managed_file import command
from lockstep.host.intended import Intended
from lockstep.onhost.facts import records

_ASK_AGAIN = " ".join(command("sense", "{item}"))
_FORGET = " ".join(command("sense", "{item}", "--forget"))

KINDS = {
    "sense": Kind(records.sense, "error", mend=_ASK_AGAIN, scope="nothing"),
    "sense record": Kind(records.sense, "error", mend=_FORGET, scope="odd"),
}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for name in seen.facts.get("sense", {}):
        yield Expectation("sense", name, "no nonsense")
