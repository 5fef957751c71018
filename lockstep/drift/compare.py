"""A pure comparison of each host with its expected facts, and of hosts with each other.

If hosts only differ from each other, nobody knows which one is right. Every host is then named with
its value, and none is told to change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lockstep.drift.subjects import KINDS
from lockstep.resources.fact_comparison import (
    DriftRow,
    Expectation,
    Facts,
    How,
    Severity,
    unmet_rows,
)

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "differs": 2, "note": 3}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of a host from its desired state, or of hosts from each other.

    Attributes:
        host: The host that should change; "" if hosts only differ.
        kind: Kind of fact.
        item: The item that it is about.
        expected: The wanted value, None: nothing.
        found: The host's value, None: nothing.
        severity: The weight of the difference.
        how: The way to put it right.
        command: The command to type on the host; "" if the deploy does it, or no one line does.
        values: Each host's value (None: nothing), if hosts only differ.
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
class ComparedHost:
    """One host's part of a comparison.

    Attributes:
        name: The host.
        facts: The facts of its snapshot.
        expectations: The facts that inventory and record want of it.
        unknown: Kinds of unreadable facts, on which the comparison is silent.
        free: (kind, item) that the inventory itself sets apart, so that no other host is held
            against it; an item of "*" is the whole kind.
        differs: Patterns of "KIND ITEM" that the inventory lets this host alone have, or lack.
    """

    name: str
    facts: Facts
    expectations: tuple[Expectation, ...]
    unknown: frozenset[str] = frozenset()
    free: frozenset[tuple[str, str]] = frozenset()
    differs: tuple[str, ...] = ()

    def is_free(self, kind: str, item: str) -> bool:
        """Tell whether this host may have or lack something that the deploy does not want."""
        return (kind, item) in self.free or any(
            fnmatchcase(f"{kind} {item}", pattern) for pattern in self.differs
        )


def differences(hosts: Sequence[ComparedHost]) -> list[Difference]:
    """Return all differences, worst first, in a stable order."""
    all_differences = [item for host in hosts for item in _against_inventory(host)]
    all_differences += _among(
        hosts, {(item.host, item.kind, item.item) for item in all_differences}
    )
    order = {host.name: number for number, host in enumerate(hosts)}

    def place(item: Difference) -> tuple[object, ...]:
        matters = RANK[KINDS[item.kind].severity]
        return RANK[item.severity], order.get(item.host, -1), matters, item.kind, item.item

    return sorted(all_differences, key=place)


def _against_inventory(host: ComparedHost) -> Iterator[Difference]:
    checked_items = {(expectation.kind, expectation.item) for expectation in host.expectations}
    for kind, row in unmet_rows(host.expectations, host.facts):
        if kind not in host.unknown:
            yield _difference(host.name, kind, row)
    for kind, facts in host.facts.items():
        if kind in KINDS and KINDS[kind].scope == "odd" and kind not in host.unknown:
            for item, value in facts.items():
                if (kind, item) not in checked_items and not host.is_free(kind, item):
                    yield _difference(host.name, kind, DriftRow(item, None, value))


def _among(
    hosts: Sequence[ComparedHost], named_items: Collection[tuple[str, str, str]]
) -> Iterator[Difference]:
    """Yield the differences between hosts, except for `named_items`.

    `named_items` are the (host, kind, item) that are known to differ from the inventory.
    """
    if len(hosts) < 2:
        return
    # Even if the inventory leaves a choice, the hosts should choose alike.
    exact = {
        (item.kind, item.item) for host in hosts for item in host.expectations if not item.accepts
    }
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
                if not host.is_free(kind, item) and (host.name, kind, item) not in named_items
            }
            if about.part:
                values = {name: value for name, value in values.items() if value is not None}
            if len(set(values.values())) > 1:
                yield Difference("", kind, item, None, None, "differs", "decide", "", values)


def _difference(host: str, kind: str, row: DriftRow) -> Difference:
    about = KINDS[kind]
    how = about.way(row)
    words = () if how == "deploy" else about.mending_command(row)
    command = shlex.join(("sudo", *words)) if words else ""
    return Difference(host, kind, *row, about.severity, how, command)


def display(difference: Difference) -> tuple[str, list[tuple[str, str]]]:
    """Return the item, and lines of hosts with their values, for a reader.

    A keyed hash is replaced by words, and a digest is shortened. The hosts of a line are "" if the
    line is about the host of the difference.
    """
    item = _DIGEST.sub(r"\1…", difference.item)
    if difference.host:
        expected_words = _words(difference, difference.expected, "as deployed")
        found_words = _words(difference, difference.found, "other content")
        return item, [("", f"expected {expected_words}, found {found_words}")]
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
    """Return a value for a reader, or words in place of a hash."""
    if value is None:
        return "nothing"
    is_hash = KINDS[difference.kind].is_sealed and len(value) == 32 and value.isalnum()
    return content if is_hash else value


def fixable(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences that a deploy puts right."""
    return [item for item in differences if item.how == "deploy"]
