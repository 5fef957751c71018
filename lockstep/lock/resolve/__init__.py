"""Resolvers of moving names: branches, tags, ranges and revisions, each asked at its source.

Only these modules talk to indexes, registries, git servers and the hub on behalf of a deploy.
Afterwards every host is told exactly what to fetch.
"""

from __future__ import annotations

import datetime
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.inventory.secret import SecretSource
from lockstep.lock import moving
from lockstep.lock.pins import Pin, Pins, PrecompiledPin, has, missing, pins_of
from lockstep.lock.resolve import announce
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.hub import resolve_checkpoint
from lockstep.lock.resolve.precompiled_wheel import resolve_precompiled
from lockstep.lock.resolve.program import end_all
from lockstep.lock.resolve.python import EarlierLock, resolve_python
from lockstep.lock.resolve.registry import resolve_image
from lockstep.lock.resolve.repository import with_shapes
from lockstep.lock.resolve.source_tree import read_tree
from lockstep.onhost.core import schema

# The work is waiting for servers; more at once would only look like an attack to them.
WORKERS = 6
# Seconds without news after which the user is told what is still being asked.
PATIENCE_S = 10.0


class ResolveErrors(ResolveError):
    """All failures of one resolution.

    Attributes:
        failures: One error per thing, in the order they were wanted.
    """

    def __init__(self, failures: tuple[ResolveError, ...], item_count: int) -> None:
        self.failures = failures
        super().__init__(f"{len(failures)} of {item_count} could not be resolved")

    def __str__(self) -> str:
        """Return one paragraph per failure below a line that counts them."""
        return "\n".join([f"{self.summary}:", *(f"- {failure}" for failure in self.failures)])


def resolve(
    wanted_items: Sequence[moving.Item],
    known_pins: Pins,
    *,
    network: Network,
    token: SecretSource | None = None,
    report: Callable[[str], None],
    earlier_locks: Mapping[str, EarlierLock] | None = None,
    known_hashes: Mapping[str, PrecompiledPin] | None = None,
) -> Pins:
    """Return ``known_pins`` with the pins of ``wanted_items`` that it lacks.

    Args:
        wanted_items: Everything that must be exact.
        known_pins: The lock; what it holds is not asked again.
        network: The servers to ask, and the way to them.
        token: The inventory's `hub_token`.
        report: Called with one line of at most 78 columns per result, from this thread.
        earlier_locks: Environment → its older lock, to keep versions from where it is resolved
            again; None keeps the versions of ``known_pins``.
        known_hashes: Compiled wheels of an older lock, by the URL of their fork. A wheel that is
            still there with the same name and size is not read again for its hash.

    Raises:
        ResolveError: the one failure, or a ResolveErrors with all of them.
    """
    if earlier_locks is None:
        earlier_locks = {name: EarlierLock(pin) for name, pin in known_pins.python.items()}
    rounds = _Rounds(network, token, report, earlier_locks, known_hashes or {})
    apart = [item for item in missing(wanted_items, known_pins) if not _trees(item)]
    pins = rounds.all(apart, known_pins)
    # The requirements of a source tree are known only when its commit is.
    later = [item for item in missing(wanted_items, pins) if _trees(item)]
    later = [item for item in later if all(has(pins, tree) for tree in _trees(item))]
    pins = rounds.all(later, pins)
    rounds.refuse()
    return pins


def _trees(item: moving.Item) -> tuple[moving.GitItem, ...]:
    match item:
        case moving.PythonItem(trees=trees):
            return trees
        case moving.PrecompiledItem(tree=tree):
            return (tree,)
    return ()


@dataclass
class _Rounds:
    """Rounds of questions, each round all at once; failures are collected over all rounds."""

    network: Network
    token: SecretSource | None
    report: Callable[[str], None]
    earlier_locks: Mapping[str, EarlierLock]
    known_hashes: Mapping[str, PrecompiledPin]
    count: int = 0
    failures: list[ResolveError] = field(default_factory=list)

    def all(self, items: Sequence[moving.Item], known_pins: Pins) -> Pins:
        """Return ``known_pins`` with the pins of the items that could be resolved."""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        resolved_pins: dict[moving.Item, Pin] = {}
        failures: dict[moving.Item, ResolveError] = {}
        results = _start(items, lambda item: self._check(item, known_pins))
        try:
            while len(resolved_pins) + len(failures) < len(items):
                try:
                    item, result = results.get(timeout=PATIENCE_S)
                except queue.Empty:
                    waiting_items = [
                        candidate
                        for candidate in items
                        if candidate not in resolved_pins and candidate not in failures
                    ]
                    self.report(announce.waiting(waiting_items))
                    continue
                if isinstance(result, ResolveError):
                    failures[item] = result
                    self.report(announce.failed_line(item))
                elif isinstance(result, BaseException):
                    raise result
                else:
                    resolved_pins[item] = replace(result, resolved=today)
                    for line in announce.resolved_lines(item, resolved_pins[item]):
                        self.report(line)
        except BaseException:
            end_all()
            raise
        self.count += len(items)
        self.failures += [failures[item] for item in items if item in failures]
        return known_pins | pins_of(resolved_pins)

    def refuse(self) -> None:
        """Raise the collected failures."""
        if len(self.failures) == 1:
            raise self.failures[0]
        if self.failures:
            raise ResolveErrors(tuple(self.failures), self.count)

    def _check(self, item: moving.Item, known_pins: Pins) -> Pin:
        """Return the pin, refused as the lock would refuse it: sources may answer nonsense."""
        pin = self._pin(item, known_pins)
        try:
            schema.build(type(pin), asdict(pin), where=item.key, error=InventoryError)
        except InventoryError as fault:
            raise ResolveError(
                f"the source's answer cannot be used: {fault.summary}",
                where=item.key,
                found=fault.found,
                allowed=fault.allowed,
                remedy="Check the addresses under sources.",
            ) from fault
        return pin

    def _pin(self, item: moving.Item, known_pins: Pins) -> Pin:
        match item:
            case moving.PythonItem(trees=trees):
                read = [
                    read_tree(tree, known_pins.git[tree.url].commit, self.network) for tree in trees
                ]
                return resolve_python(
                    item, self.network, read, self.earlier_locks.get(item.key, EarlierLock())
                )
            case moving.PrecompiledItem():
                commit, old = known_pins.git[item.key].commit, self.known_hashes.get(item.key)
                return resolve_precompiled(item, commit, self.network, old)
            case moving.GitItem():
                return resolve_git(item, self.network)
            case moving.ImageItem():
                return resolve_image(item, self.network)
            case moving.CheckpointItem(id=identity, revision=revision):
                known_pin = known_pins.checkpoints.get(identity)
                # More files of a pinned repository come from the same commit.
                at = known_pin.commit if known_pin and known_pin.asked == revision else None
                pin = resolve_checkpoint(item, self.network, at=at, token_source=self.token)
                return with_shapes(identity, pin, self.network, own_token=self.token)


def _start(
    items: Sequence[moving.Item], work: Callable[[moving.Item], Pin]
) -> queue.Queue[tuple[moving.Item, Pin | BaseException]]:
    """Start the work for all items, a few at a time; each puts its result into the queue.

    A failure is put there too. The threads are daemons, so that Ctrl-C need not wait for a server
    that does not answer.
    """
    results: queue.Queue[tuple[moving.Item, Pin | BaseException]] = queue.Queue()
    turns = threading.Semaphore(WORKERS)

    def resolve_item(item: moving.Item) -> None:
        with turns:
            try:
                results.put((item, work(item)))
            except BaseException as fault:
                results.put((item, fault))

    for item in items:
        threading.Thread(target=resolve_item, args=(item,), name="resolve", daemon=True).start()
    return results


__all__ = ["EarlierLock", "Network", "ResolveErrors", "resolve"]
