"""A new lock from an old one: of everything, or of the named things and what follows from them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.core.errors import LockstepError
from lockstep.inventory.host import HostPlan
from lockstep.inventory.logins import logged_in
from lockstep.lock import moving
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.packages import FLASHINFER, name_of
from lockstep.lock.pins import Pins, PrecompiledPin, pins_of
from lockstep.lock.resolve import EarlierLock, Network, resolve

#: Name by which FlashInfer's three packages move, which must agree.
TRIPLE = "flashinfer"


def relock(
    plans: Sequence[HostPlan], old: Pins, *, only: Sequence[str] = (), report: Callable[[str], None]
) -> Pins:
    """Return the lock of an inventory, resolved now, without things that nobody asks for now.

    Args:
        plans: Hosts of the inventory.
        old: The lock until now.
        only: Names of things that move, as `names` gives them; others stay where that is possible.
            () moves everything.
        report: Called with one line per result.

    Raises:
        LockstepError: a name that means nothing here, or a thing that cannot be resolved.
    """
    every = wanted_items([(plan.settings, plan.models) for plan in plans])
    selection = _select(every, old, only)
    selected_places = {(item.section, item.key) for item in selection.items}
    kept_pins = {place: pin for place, pin in old.entries.items() if place not in selected_places}
    first = logged_in(plans[0]).settings
    new = resolve(
        every,
        Pins.of(kept_pins) if only else Pins(),
        network=Network(first.sources, first.proxy),
        token=first.hub_token,
        report=report,
        earlier_locks=selection.earlier_locks(old) if only else {},
        known_hashes=selection.known_hashes(old),
    )
    new_entries = new.entries
    return _keep_dates(pins_of({item: new_entries[item.section, item.key] for item in every}), old)


@dataclass
class _Selection:
    """The parts of a lock that are to be resolved again."""

    items: set[moving.Item] = field(default_factory=set)
    packages: dict[str, set[str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def earlier_locks(self, old: Pins) -> dict[str, EarlierLock]:
        """Return environment → the earlier lock whose versions are kept."""
        return {
            name: EarlierLock(pin, frozenset(self.packages.get(name, ())))
            for name, pin in old.python.items()
            if name not in self.whole
        }

    def known_hashes(self, old: Pins) -> Mapping[str, PrecompiledPin]:
        """Return the compiled wheels whose hash is believed while name and size are the same."""
        names_selected = {
            item.key for item in self.items if isinstance(item, moving.PrecompiledItem)
        }
        return {key: pin for key, pin in old.precompiled.items() if key not in names_selected}


def names(item: moving.Item, old: Pins) -> Iterator[str]:
    """Yield the names that `lockstep update` may call a thing by."""
    match item:
        case moving.PythonItem(name=name, requirements=requirements, agree=agree):
            yield name
            yield from map(name_of, requirements)
            if agree:
                yield TRIPLE
            if name in old.python:
                yield from old.python[name].versions
        case moving.GitItem(url=url, repository=repository):
            yield from (repository, url)
        case moving.PrecompiledItem():
            yield "precompiled"
        case moving.ImageItem(reference=reference):
            plain = reference.partition("@")[0]
            folder, slash, last = plain.rpartition("/")
            yield from (last.partition(":")[0], folder + slash + last.partition(":")[0], reference)
        case moving.CheckpointItem(id=identity):
            yield from (identity.rpartition("/")[2], identity)


def _select(every: Sequence[moving.Item], old: Pins, only: Iterable[str]) -> _Selection:
    selection = _Selection()
    for word_typed in only:
        is_found, word = False, word_typed.lower()
        package = word.replace("_", "-").replace(".", "-")
        for item in every:
            item_names = {name.lower() for name in names(item, old)}
            if word not in item_names and not (
                isinstance(item, moving.PythonItem) and package in item_names
            ):
                continue
            is_found = True
            selection.items.add(item)
            if isinstance(item, moving.PythonItem):
                if word == item.name:
                    selection.whole.add(item.name)
                some = FLASHINFER if word == TRIPLE else (package,)
                selection.packages.setdefault(item.name, set()).update(some)
        if not is_found:
            raise _unknown(word_typed, every, old)
    return selection


def _unknown(word_typed: str, every: Sequence[moving.Item], old: Pins) -> LockstepError:
    # Only the shortest name of each thing; packages that only others need are too many to list.
    environments = (item for item in every if isinstance(item, moving.PythonItem))
    packages = {name_of(text) for item in environments for text in item.requirements}
    known_items = sorted({next(names(item, old)) for item in every} | packages)
    all_names = {name for item in every for name in names(item, old)}
    near = difflib.get_close_matches(word_typed, all_names, n=1)
    return LockstepError(
        f"nothing that is locked is called {word_typed!r}",
        allowed=", ".join(known_items),
        remedy=f"Did you mean {near[0]!r}?" if near else "",
    )


def _keep_dates(new: Pins, old: Pins) -> Pins:
    """Return the new lock with the old dates of things that have not moved."""
    entries = new.entries
    for place, old_pin in old.entries.items():
        if place in entries and replace(entries[place], resolved=old_pin.resolved) == old_pin:
            entries[place] = old_pin
    return Pins.of(entries)
