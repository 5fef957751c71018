"""Keys that several hosts have alike, as by which the members of a cluster know each other.

Each is made on one host and goes from there to the others through this process' memory only: no
command line, no log and no file here ever holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation
from pyinfra.connectors.util import CommandOutput

from lockstep.files.managed_file import command
from lockstep.host.shared_keys import SharedKey
from lockstep.tasks import remote, report, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands


@operation()
def made() -> Commands:
    """Make each key that this host is to give and lacks, once."""
    keys = run.current().shared_keys
    missing = [key for key in keys if run.giver(key) == host.name and not _hash(host.name, key)]
    for key in missing:
        making = Made.of(key.make)
        if not key.content(facts.ask("files")):
            making.announcement = key.announcement
        yield making
    if missing:
        yield from _restarted(missing)
    else:
        host.noop("no key is to be made here")


@operation()
def carried() -> Commands:
    """Give this host the keys that others have."""
    changed = []
    for key in run.current().shared_keys:
        giver = run.giver(key)
        if giver == host.name:
            continue
        mine = _hash(host.name, key)
        first = _in_run(giver)
        if first is None:
            if mine is None:
                yield from remote.refuse(
                    f"the {key.what} is to come from {giver}, which is not part of this run any "
                    f"more. Remedy: deploy to {', '.join(key.hosts)} together."
                )
            continue
        if mine is None or mine != key.given(first.name, _files(first.name)):
            changed.append(key)
            taking = Carried.of(key.take)
            taking.first, taking.reading = first, ("cat", key.path)
            yield taking
    if changed:
        yield from _restarted(changed)
    else:
        host.noop("the keys are those of the hosts that made them")


@operation()
def persons() -> Commands:
    """Have this host's gateway know each person's last change that another host of the run knows.

    A revocation is such a change: the gateway's program keeps the later one of two.
    """
    mine = _changes(host.name)
    if mine is None:
        host.noop("the keys of persons here cannot be read, and stay as they are")
        return
    lacking = False
    for other in state.inventory:
        if other.name == host.name or other not in state.active_hosts:
            continue
        theirs = _changes(other.name) or {}
        if any(_is_later(change, mine.get(person)) for person, change in theirs.items()):
            lacking = True
            taking = Carried.of(command("gateway-keys", "take"))
            taking.first, taking.reading = other, command("gateway-keys", "list")
            yield taking
    absent = [other.name for other in state.inventory if other not in state.active_hosts]
    if absent and not facts.ask("records.generation"):
        text = (
            f"{host.name} is new, and {', '.join(absent)} may know keys of persons that it lacks. "
        )
        report.news(host.name, f"{text}Remedy: `lockstep key list --fix`.")
    if not lacking:
        host.noop("every last change is known here")


def _changes(name: str) -> Mapping[str, Sequence[Any]] | None:
    """Person → last change that a host knows; None where that cannot be told."""
    found = facts.ask("records.persons", state.inventory.get_host(name))
    if found is None:
        return None
    if found["fault"]:
        text = f"{name}: keys of persons cannot be read, and its gateway refuses every key: "
        remedy = "move the file away, and run `lockstep key list --fix`"
        report.news(name, f"{text}{found['fault']}. Remedy: {remedy}.")
        return None
    changes: dict[str, Sequence[Any]] = found["changes"]
    return changes


def _is_later(change: Sequence[Any], mine: Sequence[Any] | None) -> bool:
    """Whether a change may have to be taken over; of two at one time the program decides."""
    if mine is None:
        return True
    *when, seal = change
    *known, own = mine
    return seal != own and when >= known


def _restarted(keys: Iterable[SharedKey]) -> Commands:
    """What runs must not go on with the key of before."""
    states = facts.ask("units") or {}
    units = dict.fromkeys(unit for key in keys for unit in key.units)
    running = [unit for unit in units if states.get(unit, {}).get("ActiveState") == "active"]
    if running:
        yield remote.words(["systemctl", "restart", *running])


def _in_run(name: str) -> Any:
    """A host of this run; None where it is no part of it, or has failed."""
    found = state.inventory.get_host(name) if name else None
    return found if found in state.active_hosts else None


class Made(remote.Changing):
    """Makes a key; a new one that people's devices must be told of is announced."""

    announcement: str = ""

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Make it."""
        done, output = super().run(state, host, connector_arguments)
        if done and self.announcement:
            report.news(host.name, self.announcement)
        return done, output


class Carried(remote.Changing):
    """Gives a program here what another host's prints; nothing of it is shown."""

    first: Any = None
    reading: Sequence[str] = ()

    def run(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Read it there, write it here."""
        done, output = remote.run_on(self.first, self.reading, shown=False)
        if not done:
            why = f"{self.first.name} did not give what `{' '.join(self.reading)}` prints"
            return remote.failed(host, why), CommandOutput([])
        connector_arguments["_stdin"] = [output.stdout + "\n"]
        return super().run(state, host, connector_arguments)


def _hash(name: str, key: SharedKey) -> str | None:
    return key.seal(name, _files(name))


def _files(name: str) -> Mapping[str, Any] | None:
    """What the reader `files` answered on a host."""
    found: Mapping[str, Any] | None = facts.ask("files", state.inventory.get_host(name))
    return found
