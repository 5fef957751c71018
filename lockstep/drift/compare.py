"""Compares each host with its expected facts, and hosts with each other. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lockstep.drift.subjects import KINDS
from lockstep.drift.subjects.kind import Expectation, Facts, How, Row, Severity

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
ASKED = "inventory"
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of one host.

    Attributes:
        host: The host that is to change.
        kind: Kind of fact.
        item: What it is about.
        against: `ASKED`, or the name of the host that it was compared with.
        expected: What was asked for or found on that host, None: nothing.
        found: What the host shows, None: nothing.
        severity: How much it matters.
        how: Who puts it right.
        command: What to type on the host, "" where no one line does it, or the deploy does.
    """

    host: str
    kind: str
    item: str
    against: str
    expected: str | None
    found: str | None
    severity: Severity
    how: How
    command: str


@dataclass(frozen=True)
class Host:
    """One host's part of a comparison.

    Attributes:
        name: The host.
        facts: What its snapshot shows.
        expected: What inventory and record ask of it.
        unknown: Kinds of facts that could not be read: nothing is said about them.
        free: (kind, item) that the inventory asks to be its own, so that no other host is held
            against it; an item of "*" is the whole kind.
    """

    name: str
    facts: Facts
    expected: tuple[Expectation, ...]
    unknown: frozenset[str] = frozenset()
    free: frozenset[tuple[str, str]] = frozenset()


def differences(hosts: Sequence[Host]) -> list[Difference]:
    """Everything that differs, worst first, in a stable order."""
    found = [item for host in hosts for item in _against_inventory(host)]
    found += _among(hosts, {(item.host, item.kind, item.item) for item in found})
    order = {host.name: number for number, host in enumerate(hosts)}
    return sorted(
        found, key=lambda item: (RANK[item.severity], order[item.host], item.kind, item.item)
    )


def _against_inventory(host: Host) -> Iterator[Difference]:
    asked: set[tuple[str, str]] = set()
    for expectation in host.expected:
        asked.add((expectation.kind, expectation.item))
        if expectation.kind in host.unknown:
            continue
        found = host.facts.get(expectation.kind, {}).get(expectation.item)
        if not expectation.holds(found):
            yield _difference(
                host.name, expectation.kind, expectation.item, expectation.value, found
            )
    for kind, facts in host.facts.items():
        if kind in KINDS and KINDS[kind].scope == "odd" and kind not in host.unknown:
            for item, value in facts.items():
                if (kind, item) not in asked:
                    yield _difference(host.name, kind, item, None, value)


def _among(hosts: Sequence[Host], named: Collection[tuple[str, str, str]]) -> Iterator[Difference]:
    """Differences between hosts, but for `named`: (host, kind, item) that are known to differ from
    what the inventory asks for."""
    if len(hosts) < 2:
        return
    # Where the inventory leaves a choice, hosts still should choose the same.
    exact = {(item.kind, item.item) for host in hosts for item in host.expected if not item.accepts}
    for kind, about in KINDS.items():
        if about.scope != "hosts":
            continue
        taking_part = [
            host for host in hosts if (kind, "*") not in host.free and kind not in host.unknown
        ]
        items = dict.fromkeys(item for host in taking_part for item in host.facts.get(kind, {}))
        for item in items:
            if (kind, item) in exact:
                continue
            shown = {
                host.name: host.facts.get(kind, {}).get(item)
                for host in taking_part
                if (kind, item) not in host.free and (host.name, kind, item) not in named
            }
            yield from _odd_ones(kind, item, shown)


def _odd_ones(kind: str, item: str, shown: Mapping[str, str | None]) -> Iterator[Difference]:
    """Hosts that differ from most of the others; of a tie, from the first in the inventory."""
    counted = Counter(shown.values())
    if len(counted) < 2:
        return
    # Counter keeps the order of first sight, and max the first of equals.
    usual = max(counted, key=lambda value: counted[value])
    model = next(name for name, value in shown.items() if value == usual)
    for name, value in shown.items():
        if value != usual and not (KINDS[kind].part and None in (value, usual)):
            yield _difference(name, kind, item, usual, value, against=model)


def _difference(
    host: str, kind: str, item: str, expected: str | None, found: str | None, against: str = ASKED
) -> Difference:
    about, row = KINDS[kind], Row(item, expected, found)
    how = about.how(row) if callable(about.how) else about.how
    # A deploy knows nothing of what only another host has.
    if how == "deploy" and against != ASKED:
        how = "by hand"
    words = () if how == "deploy" else about.remedy(row)
    command = shlex.join(("sudo", *words)) if words else ""
    return Difference(host, kind, item, against, expected, found, about.severity, how, command)


def shown(difference: Difference) -> tuple[str, str, str]:
    """(item, expected, found) for a reader: a keyed hash says nothing, a digest too much."""
    about, model = KINDS[difference.kind], difference.against

    def words(value: str | None, absent: str, content: str) -> str:
        if value is None:
            return absent
        is_hash = about.sealed and len(value) == 32 and value.isalnum()
        return content if is_hash else value

    if model == ASKED:
        expected = words(difference.expected, "nothing", "as deployed")
    else:
        told = words(difference.expected, "nothing", "that")
        expected = f"as on {model}" if told == "that" else f"{told} as on {model}"
    item = _DIGEST.sub(r"\1…", difference.item)
    return item, expected, words(difference.found, "nothing", "other content")


def fixable(differences: Iterable[Difference]) -> list[Difference]:
    """Those that a deploy puts right."""
    return [item for item in differences if item.how == "deploy"]
