"""Compares each host with its expected facts, and hosts with each other. Pure.

Of what only differs between hosts nobody knows which is right: every host is named with what it
shows, and none is told to change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lockstep.drift.subjects import KINDS
from lockstep.drift.subjects.kind import Expectation, Facts, How, Row, Severity

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "differs": 2, "note": 3}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of a host from what is asked of it, or of hosts from each other.

    Attributes:
        host: The host that is to change; "" where hosts only differ.
        kind: Kind of fact.
        item: What it is about.
        expected: What is asked for, None: nothing.
        found: What the host shows, None: nothing.
        severity: How much it matters.
        how: Who puts it right.
        command: What to type on the host, "" where no one line does it, or the deploy does.
        values: Host → what it shows, None: nothing, where hosts only differ.
    """

    host: str
    kind: str
    item: str
    expected: str | None
    found: str | None
    severity: Severity
    how: How
    command: str
    values: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host that it is about."""
        return (self.host,) if self.host else tuple(self.values)


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
        differs: Patterns of "KIND ITEM" that the inventory lets this host alone have, or lack.
    """

    name: str
    facts: Facts
    expected: tuple[Expectation, ...]
    unknown: frozenset[str] = frozenset()
    free: frozenset[tuple[str, str]] = frozenset()
    differs: tuple[str, ...] = ()

    def is_free(self, kind: str, item: str) -> bool:
        """Whether this host may have or lack something that the deploy does not ask for."""
        return (kind, item) in self.free or any(
            fnmatchcase(f"{kind} {item}", pattern) for pattern in self.differs
        )


def differences(hosts: Sequence[Host]) -> list[Difference]:
    """Everything that differs, worst first, in a stable order."""
    found = [item for host in hosts for item in _against_inventory(host)]
    found += _among(hosts, {(item.host, item.kind, item.item) for item in found})
    order = {host.name: number for number, host in enumerate(hosts)}

    def place(item: Difference) -> tuple[object, ...]:
        matters = RANK[KINDS[item.kind].severity]
        return RANK[item.severity], order.get(item.host, -1), matters, item.kind, item.item

    return sorted(found, key=place)


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
                if (kind, item) not in asked and not host.is_free(kind, item):
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
            values = {
                host.name: host.facts.get(kind, {}).get(item)
                for host in taking_part
                if not host.is_free(kind, item) and (host.name, kind, item) not in named
            }
            if about.part:
                values = {name: value for name, value in values.items() if value is not None}
            if len(set(values.values())) > 1:
                yield Difference("", kind, item, None, None, "differs", "decide", "", values)


def _difference(
    host: str, kind: str, item: str, expected: str | None, found: str | None
) -> Difference:
    about, row = KINDS[kind], Row(item, expected, found)
    how = about.how(row) if callable(about.how) else about.how
    words = () if how == "deploy" else about.remedy(row)
    command = shlex.join(("sudo", *words)) if words else ""
    return Difference(host, kind, item, expected, found, about.severity, how, command)


def shown(difference: Difference) -> tuple[str, list[tuple[str, str]]]:
    """The item, and lines of (hosts, what they show), for a reader: a keyed hash says nothing, a
    digest too much. Without hosts where the one of the difference is meant."""
    item = _DIGEST.sub(r"\1…", difference.item)
    if difference.host:
        expected = _words(difference, difference.expected, "as deployed")
        found = _words(difference, difference.found, "other content")
        return item, [("", f"expected {expected}, found {found}")]
    alike: dict[str | None, list[str]] = {}
    for host, value in difference.values.items():
        alike.setdefault(value, []).append(host)
    contents = [value for value in alike if value is not None]
    numbers: dict[str | None, int] = {value: number for number, value in enumerate(contents, 1)}
    lines = [
        (", ".join(hosts), _words(difference, value, f"content {numbers.get(value)}"))
        for value, hosts in alike.items()
    ]
    return item, lines


def _words(difference: Difference, value: str | None, content: str) -> str:
    """A value for a reader, or what to say in place of a hash."""
    if value is None:
        return "nothing"
    is_hash = KINDS[difference.kind].sealed and len(value) == 32 and value.isalnum()
    return content if is_hash else value


def fixable(differences: Iterable[Difference]) -> list[Difference]:
    """Those that a deploy puts right."""
    return [item for item in differences if item.how == "deploy"]
