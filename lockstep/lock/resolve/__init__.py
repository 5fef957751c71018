"""Moving names to exact ones: branches, tags, ranges and revisions, each asked at its source.

This is the only part that talks to indexes, registries, git servers and the hub on behalf of a
deploy; afterwards every host is told exactly what to fetch.
"""

from __future__ import annotations

import datetime
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.inventory.secret import Source
from lockstep.lock import moving
from lockstep.lock.pins import Pin, Pins, PrecompiledPin, has, missing, pinned
from lockstep.lock.resolve import announce
from lockstep.lock.resolve.git import resolve_git
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.hub import resolve_model
from lockstep.lock.resolve.precompiled import resolve_precompiled
from lockstep.lock.resolve.program import end_all
from lockstep.lock.resolve.python import Before, resolve_python
from lockstep.lock.resolve.registry import resolve_image
from lockstep.lock.resolve.repository import with_shapes
from lockstep.lock.resolve.source_tree import read_tree
from lockstep.onhost.core import schema

# The work is waiting for servers; more at once would only look like an attack to them.
WORKERS = 6
# Seconds without news after which the user is told what is still being asked.
PATIENCE_S = 10.0


class ResolveErrors(ResolveError):
    """Everything that could not be resolved in one go.

    Attributes:
        failures: One error per thing, in the order they were wanted.
    """

    def __init__(self, failures: tuple[ResolveError, ...], asked: int) -> None:
        self.failures = failures
        super().__init__(f"{len(failures)} of {asked} could not be resolved")

    def __str__(self) -> str:
        """One paragraph per failure below a line that counts them."""
        return "\n".join([f"{self.what}:", *(f"- {failure}" for failure in self.failures)])


def resolve(
    wanted: Sequence[moving.Item],
    known: Pins,
    *,
    network: Network,
    token: Source | None = None,
    report: Callable[[str], None],
    before: Mapping[str, Before] | None = None,
    hashed: Mapping[str, PrecompiledPin] | None = None,
) -> Pins:
    """``known``, and what of ``wanted`` it lacks.

    Args:
        wanted: Everything that has to be exact.
        known: The lock; what it holds is not asked again.
        network: Where to ask, and how to get there.
        token: The inventory's `hub_token`.
        report: Called with one line of at most 78 columns per result, from this thread.
        before: Environment → what of an older lock is kept where it is resolved again; None keeps
            the versions of ``known``.
        hashed: Compiled wheels of an older lock, by the URL of their fork: one that is there still,
            with the same name and size, is not read again for its hash.

    Raises:
        ResolveError: the one failure, or a ResolveErrors with all of them.
    """
    if before is None:
        before = {name: Before(pin) for name, pin in known.python.items()}
    asked = _Asked(network, token, report, before, hashed or {})
    apart = [item for item in missing(wanted, known) if not _trees(item)]
    pins = asked.all(apart, known)
    # What a source tree needs is known only when its commit is.
    later = [item for item in missing(wanted, pins) if _trees(item)]
    later = [item for item in later if all(has(pins, tree) for tree in _trees(item))]
    pins = asked.all(later, pins)
    asked.refuse()
    return pins


def _trees(item: moving.Item) -> tuple[moving.GitWanted, ...]:
    match item:
        case moving.PythonWanted(trees=trees):
            return trees
        case moving.PrecompiledWanted(tree=tree):
            return (tree,)
    return ()


@dataclass
class _Asked:
    """Rounds of questions, each all at once; failures are collected over all rounds."""

    network: Network
    token: Source | None
    report: Callable[[str], None]
    before: Mapping[str, Before]
    hashed: Mapping[str, PrecompiledPin]
    count: int = 0
    failures: list[ResolveError] = field(default_factory=list)

    def all(self, items: Sequence[moving.Item], known: Pins) -> Pins:
        """``known``, and the pins of those that could be resolved."""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        found: dict[moving.Item, Pin] = {}
        failures: dict[moving.Item, ResolveError] = {}
        results = _start(items, lambda item: self._checked(item, known))
        try:
            while len(found) + len(failures) < len(items):
                try:
                    item, result = results.get(timeout=PATIENCE_S)
                except queue.Empty:
                    left = [each for each in items if each not in found and each not in failures]
                    self.report(announce.waiting(left))
                    continue
                if isinstance(result, ResolveError):
                    failures[item] = result
                    self.report(announce.failed(item))
                elif isinstance(result, BaseException):
                    raise result
                else:
                    found[item] = replace(result, resolved=today)
                    for line in announce.resolved(item, found[item]):
                        self.report(line)
        except BaseException:
            end_all()
            raise
        self.count += len(items)
        self.failures += [failures[item] for item in items if item in failures]
        return known | pinned(found)

    def refuse(self) -> None:
        """Raise what failed."""
        if len(self.failures) == 1:
            raise self.failures[0]
        if self.failures:
            raise ResolveErrors(tuple(self.failures), self.count)

    def _checked(self, item: moving.Item, known: Pins) -> Pin:
        """The pin, refused where the lock would refuse it: sources may answer nonsense."""
        pin = self._pin(item, known)
        try:
            schema.build(type(pin), asdict(pin), where=item.key, error=InventoryError)
        except InventoryError as fault:
            raise ResolveError(
                f"the source's answer cannot be used: {fault.what}",
                where=item.key,
                found=fault.found,
                allowed=fault.allowed,
                remedy="Check the addresses under sources.",
            ) from fault
        return pin

    def _pin(self, item: moving.Item, known: Pins) -> Pin:
        match item:
            case moving.PythonWanted(trees=trees):
                read = [read_tree(tree, known.git[tree.url].commit, self.network) for tree in trees]
                return resolve_python(item, self.network, read, self.before.get(item.key, Before()))
            case moving.PrecompiledWanted():
                commit, old = known.git[item.key].commit, self.hashed.get(item.key)
                return resolve_precompiled(item, commit, self.network, old)
            case moving.GitWanted():
                return resolve_git(item, self.network)
            case moving.ImageWanted():
                return resolve_image(item, self.network)
            case moving.ModelWanted(id=identity, revision=revision):
                held = known.models.get(identity)
                # Only more files of what is pinned already: they come from the same commit.
                at = held.commit if held and held.asked == revision else None
                pin = resolve_model(item, self.network, at=at, given=self.token)
                return with_shapes(identity, pin, self.network, given=self.token)


def _start(
    items: Sequence[moving.Item], work: Callable[[moving.Item], Pin]
) -> queue.Queue[tuple[moving.Item, Pin | BaseException]]:
    """Begin all of them, a few at a time; each puts its result or its failure into the queue.

    The threads are daemons, so that Ctrl-C need not wait for a server that does not answer.
    """
    results: queue.Queue[tuple[moving.Item, Pin | BaseException]] = queue.Queue()
    turns = threading.Semaphore(WORKERS)

    def one(item: moving.Item) -> None:
        with turns:
            try:
                results.put((item, work(item)))
            except BaseException as fault:
                results.put((item, fault))

    for item in items:
        threading.Thread(target=one, args=(item,), name="resolve", daemon=True).start()
    return results


__all__ = ["Before", "Network", "ResolveErrors", "resolve"]
