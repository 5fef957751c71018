"""The form of a subject of drift: the kinds of facts of one part of a host.

Each module beside this one has `KINDS`. It may have `questions`, what its readers are asked beside
the key of this run's hashes, and `expected`, what inventory and lock ask of one host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lockstep.files.sent import Reader

Severity = Literal["error", "warning", "differs", "note"]
How = Literal["deploy", "by hand", "reboot", "decide"]
Facts = Mapping[str, Mapping[str, str]]
ANY = "present"


class Row(NamedTuple):
    """What differs; `expected` and `found` are None for something that is not there."""

    item: str
    expected: str | None = None
    found: str | None = None


#: The words of a command, without sudo, that repairs a row on its host; () where no one line does
#: it. As text: words with {item}, {expected}, {found} or {first}, the first word of the item.
Remedy = str | Callable[[Row], tuple[str, ...]]


@dataclass(frozen=True)
class Kind:
    """One kind of fact.

    Attributes:
        reader: What finds it on a host.
        severity: How much it matters: an "error" breaks or endangers serving, a "warning" makes
            hosts unequal in what they do, a "note" in what they hold. Hosts that only differ have
            "differs" instead.
        how: Who puts right what inventory or record ask for.
        mend: What to type on the host for that.
        keep: For a difference, how the inventory has it stay, a sentence; "" where it cannot.
        scope: What else than the expected is drift: "hosts" have different ones, "nothing", or
            whatever is "odd", because nothing asks for it.
        part: Whether it is a part of something else, of which another kind says that it is missing.
        sealed: Whether values are keyed hashes, which say nothing to a reader.
    """

    reader: Reader
    severity: Severity = "warning"
    how: How | Callable[[Row], How] = "by hand"
    mend: Remedy = ""
    keep: Callable[[Row], str] = lambda row: ""
    scope: Literal["hosts", "nothing", "odd"] = "hosts"
    part: bool = False
    sealed: bool = False

    def remedy(self, row: Row) -> tuple[str, ...]:
        """The words of the command for a row, without sudo."""
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
        item: What it is about.
        value: The value that is asked for, as it is shown.
        accepts: Whether another value than `value` will do; None: no other.
        if_there: Whether it is only asked for where the host shows this item at all.
    """

    kind: str
    item: str
    value: str = ANY
    accepts: Callable[[str], bool] | None = None
    if_there: bool = False

    def holds(self, found: str | None) -> bool:
        """Whether what a host shows is what is asked for."""
        if found is None:
            return self.if_there
        return found == self.value or (self.accepts is not None and self.accepts(found))


def there(kind: str, item: str) -> Expectation:
    """Whatever its value is."""
    return Expectation(kind, item, accepts=lambda _: True)


@dataclass(frozen=True)
class Seen:
    """What a host showed, where that decides about what is asked of it.

    Attributes:
        facts: Kind → item → value.
        key: Key of this run's hashes.
    """

    facts: Facts
    key: bytes
