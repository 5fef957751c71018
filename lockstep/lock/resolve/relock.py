"""A new lock from an old one: everything anew, or the named things and what follows from them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.core.errors import LockstepError
from lockstep.inventory.host import HostPlan
from lockstep.inventory.logins import logged_in
from lockstep.lock import moving
from lockstep.lock.packages import FLASHINFER, name_of
from lockstep.lock.pins import Pins, PrecompiledPin, pinned
from lockstep.lock.resolve import Before, Network, resolve
from lockstep.lock.wanted import wanted

#: Name by which FlashInfer's three packages move, which must agree.
TRIPLE = "flashinfer"


def relock(
    plans: Sequence[HostPlan], old: Pins, *, only: Sequence[str] = (), report: Callable[[str], None]
) -> Pins:
    """The lock of an inventory, resolved now; what nobody asks for any more is not in it.

    Args:
        plans: Hosts of the inventory.
        old: The lock until now.
        only: Names of what moves, as `names` gives them; all else stays where that is possible.
            () moves everything.
        report: Called with one line per result.

    Raises:
        LockstepError: a name that means nothing here, or what cannot be resolved.
    """
    every = wanted([(plan.settings, plan.targets) for plan in plans])
    moved = _chosen(every, old, only)
    gone = {(item.section, item.key) for item in moved.items}
    kept = {place: pin for place, pin in old.entries.items() if place not in gone}
    first = logged_in(plans[0]).settings
    new = resolve(
        every,
        Pins.of(kept) if only else Pins(),
        network=Network(first.sources, first.proxy),
        token=first.hub_token,
        report=report,
        before=moved.before(old) if only else {},
        hashed=moved.hashed(old),
    )
    asked = new.entries
    return _dated(pinned({item: asked[item.section, item.key] for item in every}), old)


@dataclass
class _Moved:
    """What of a lock is to be resolved again."""

    items: set[moving.Item] = field(default_factory=set)
    packages: dict[str, set[str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def before(self, old: Pins) -> dict[str, Before]:
        """Environment → what is kept of it."""
        return {
            name: Before(pin, frozenset(self.packages.get(name, ())))
            for name, pin in old.python.items()
            if name not in self.whole
        }

    def hashed(self, old: Pins) -> Mapping[str, PrecompiledPin]:
        """Compiled wheels whose hash is believed where they still are what they were."""
        named = {item.key for item in self.items if isinstance(item, moving.PrecompiledWanted)}
        return {key: pin for key, pin in old.precompiled.items() if key not in named}


def names(item: moving.Item, old: Pins) -> Iterator[str]:
    """What `lockstep update` may call a thing."""
    match item:
        case moving.PythonWanted(name=name, asked=asked, agree=agree):
            yield name
            yield from map(name_of, asked)
            if agree:
                yield TRIPLE
            if name in old.python:
                yield from old.python[name].versions
        case moving.GitWanted(url=url, repository=repository):
            yield from (repository, url)
        case moving.PrecompiledWanted():
            yield "precompiled"
        case moving.ImageWanted(reference=reference):
            plain = reference.partition("@")[0]
            folder, slash, last = plain.rpartition("/")
            yield from (last.partition(":")[0], folder + slash + last.partition(":")[0], reference)
        case moving.ModelWanted(id=identity):
            yield from (identity.rpartition("/")[2], identity)


def _chosen(every: Sequence[moving.Item], old: Pins, only: Iterable[str]) -> _Moved:
    moved = _Moved()
    for asked in only:
        found, word = False, asked.lower()
        package = word.replace("_", "-").replace(".", "-")
        for item in every:
            called = {name.lower() for name in names(item, old)}
            if word not in called and not (
                isinstance(item, moving.PythonWanted) and package in called
            ):
                continue
            found = True
            moved.items.add(item)
            if isinstance(item, moving.PythonWanted):
                if word == item.name:
                    moved.whole.add(item.name)
                some = FLASHINFER if word == TRIPLE else (package,)
                moved.packages.setdefault(item.name, set()).update(some)
        if not found:
            raise _unknown(asked, every, old)
    return moved


def _unknown(asked: str, every: Sequence[moving.Item], old: Pins) -> LockstepError:
    # The shortest name of each thing; packages that only others need are too many to list.
    environments = (item for item in every if isinstance(item, moving.PythonWanted))
    packages = {name_of(text) for item in environments for text in item.asked}
    known = sorted({next(names(item, old)) for item in every} | packages)
    all_names = {name for item in every for name in names(item, old)}
    near = difflib.get_close_matches(asked, all_names, n=1)
    return LockstepError(
        f"nothing that is locked is called {asked!r}",
        allowed=", ".join(known),
        remedy=f"Did you mean {near[0]!r}?" if near else "",
    )


def _dated(new: Pins, old: Pins) -> Pins:
    """What has not moved keeps the date at which it was resolved."""
    entries = new.entries
    for place, before in old.entries.items():
        if place in entries and replace(entries[place], resolved=before.resolved) == before:
            entries[place] = before
    return Pins.of(entries)
