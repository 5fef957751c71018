"""The one comparison of a host with what is wanted of it, for deploy and diff alike.

A resource and a subject of drift have the same form: `KINDS`, the kinds of facts of one part of a
host; `questions`, the questions to its readers; `expectations`, the facts that inventory and lock
want of one host. A deploy changes what `rows_to_mend` yields for these, and nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lockstep.files.remote_exec import Reader

Severity = Literal["error", "warning", "differs", "note"]
How = Literal["deploy", "by hand", "reboot", "decide"]
Facts = Mapping[str, Mapping[str, str]]
ANY = "present"


class DriftRow(NamedTuple):
    """One difference; `expected` and `found` are None for something that is not there."""

    item: str
    expected: str | None = None
    found: str | None = None


#: The words of a command, without sudo, that repairs a row on its host; () if no one line does. As
#: text: words with {item}, {expected}, {found} or {first}, the first word of the item.
Remedy = str | Callable[[DriftRow], tuple[str, ...]]


@dataclass(frozen=True)
class Kind:
    """One kind of fact.

    Attributes:
        reader: The reader of these facts on a host.
        severity: An "error" breaks or endangers serving, a "warning" makes hosts unequal in their
            work, a "note" in their content. Hosts that only differ have "differs" instead.
        how: The way to put right a difference from inventory or record.
        mend: The command for that on the host.
        keep: For a difference, a sentence on how the inventory can keep it; "" if it cannot.
        scope: Drift beyond the expected facts: "hosts": different values; "nothing": none;
            "odd": every fact, because nothing asks for it.
        part: True for a part of something else, whose own kind reports a missing whole.
        is_sealed: True if values are keyed hashes, which say nothing to a reader.
    """

    reader: Reader
    severity: Severity = "warning"
    how: How | Callable[[DriftRow], How] = "by hand"
    mend: Remedy = ""
    keep: Callable[[DriftRow], str] = lambda row: ""
    scope: Literal["hosts", "nothing", "odd"] = "hosts"
    part: bool = False
    is_sealed: bool = False

    def way(self, row: DriftRow) -> How:
        """Return the way to put a row right."""
        return self.how(row) if callable(self.how) else self.how

    def mending_command(self, row: DriftRow) -> tuple[str, ...]:
        """Return the words of the command for a row, without sudo."""
        if callable(self.mend):
            return self.mend(row)
        values = {**row._asdict(), "first": row.item.partition(" ")[0]}
        if any(value is None and f"{{{name}}}" in self.mend for name, value in values.items()):
            return ()
        return tuple(word.format(**values) for word in self.mend.split())


@dataclass(frozen=True)
class Expectation:
    """One fact that a host must show.

    Attributes:
        kind: Kind of fact.
        item: The item that it is about.
        value: The wanted value, as it is shown.
        accepts: A test for other acceptable values; None: no other.
        if_there: True if the fact is wanted only on hosts that show this item at all.
    """

    kind: str
    item: str
    value: str = ANY
    accepts: Callable[[str], bool] | None = None
    if_there: bool = False

    def holds(self, value: str | None) -> bool:
        """Tell whether a host's value is as wanted."""
        if value is None:
            return self.if_there
        return value == self.value or (self.accepts is not None and self.accepts(value))


def any_value(kind: str, item: str) -> Expectation:
    """Return an expectation that accepts every value."""
    return Expectation(kind, item, accepts=lambda _: True)


def unmet_rows(expectations: Iterable[Expectation], facts: Facts) -> Iterator[tuple[str, DriftRow]]:
    """Yield kind and row of each fact that a host does not show as wanted."""
    for expectation in expectations:
        found = facts.get(expectation.kind, {}).get(expectation.item)
        if not expectation.holds(found):
            yield expectation.kind, DriftRow(expectation.item, expectation.value, found)


def rows_to_mend(
    kinds: Mapping[str, Kind], expectations: Iterable[Expectation], facts: Facts
) -> list[tuple[str, DriftRow]]:
    """Return kind and row of each difference that a deploy puts right."""
    return [
        (kind, row)
        for kind, row in unmet_rows(expectations, facts)
        if kinds[kind].way(row) == "deploy"
    ]


@dataclass(frozen=True)
class SubjectView:
    """The facts of a host that decide about the expectations.

    Attributes:
        facts: Values by kind and item.
        key: Key of this run's hashes.
    """

    facts: Facts
    key: bytes
