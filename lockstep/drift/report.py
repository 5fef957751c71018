"""A whole diff of an inventory: questions, snapshots, differences, unreadable parts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lockstep.core.errors import InventoryError
from lockstep.drift import hosts
from lockstep.drift.compare import Difference, Host, differences
from lockstep.drift.subjects import KINDS, environments, expected, questions
from lockstep.drift.subjects.files import DEPLOYED, is_deployed_to, shared_keys
from lockstep.drift.subjects.kind import Expectation, Seen
from lockstep.files.sent import named
from lockstep.fleet.hosts import at_once, choose
from lockstep.host.intended import Intended
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile, pins
from lockstep.lock.wanted import wanted
from lockstep.system.accounts import people

SAME, DRIFT, UNKNOWN = 0, 1, 2
#: Differences that are left on a host for its page.
SHOWN = 40


@dataclass(frozen=True)
class Report:
    """What a diff found.

    Attributes:
        inventory: The inventory's name.
        hosts: Names of the hosts, in the inventory's order.
        differences: Worst first.
        unknown: (host, what could not be told and why).
    """

    inventory: str
    hosts: tuple[str, ...]
    differences: tuple[Difference, ...]
    unknown: tuple[tuple[str, str], ...]

    @property
    def code(self) -> int:
        """Exit code: 0 same, 1 drift, 2 could not tell."""
        if self.unknown:
            return UNKNOWN
        return DRIFT if self.differences else SAME


def diff(
    path: Path, *, limit: Sequence[str] = (), deep: bool = False, password: str | None = None
) -> Report:
    """The report on the hosts of an inventory file.

    Args:
        limit: Only these hosts; () all.
        deep: Whether every byte of weights and packages is read.
        password: For sudo on the hosts; None where it asks for none.

    Raises:
        LockstepError: the inventory is wrong, lacks a host of ``limit``, or is not locked whole.
    """
    key = secrets.token_bytes(32)
    intended, asked = read(path, limit=limit, key=key, deep=deep)
    asked = [replace(each, password=password) for each in asked]
    taken = hosts.take_all(asked)
    found = judge(path.stem, intended, taken, key=key)
    there = [each for each, answer in zip(asked, taken, strict=True) if answer.snapshot]
    at_once(lambda each: hosts.leave(each, of_host(found, each.login.name)), there)
    return found


def of_host(found: Report, name: str) -> dict[str, Any]:
    """What the report says of one host, as its page has it (`records.last_diff`), at most
    `SHOWN` differences, and "more": how many are left out."""
    of = [item for item in found.differences if name in item.hosts]
    keys = ("severity", "kind", "item", "how")
    return {
        "differences": [{key: getattr(item, key) for key in keys} for item in of[:SHOWN]],
        "more": max(0, len(of) - SHOWN),
        "unknown": [why for host, why in found.unknown if host == name],
    }


def read(
    path: Path, *, limit: Sequence[str] = (), key: bytes, deep: bool = False
) -> tuple[list[Intended], list[hosts.Asked]]:
    """The hosts of an inventory as they are to be, and what to ask them.

    Raises:
        LockstepError: as `diff` does.
    """
    every, chosen = choose(path, limit)
    plans = [host.plan for host in every]
    lock_path = inventories.lock_path(path, plans)
    record = lockfile.load(lock_path)
    missing = pins.missing(wanted([(plan.settings, plan.targets) for plan in plans]), record)
    if missing:
        one = "1 thing that this inventory asks for is"
        many = f"{len(missing)} things that this inventory asks for are"
        raise InventoryError(
            f"{one if len(missing) == 1 else many} not locked yet",
            where=str(lock_path),
            remedy="Deploy first: there is nothing yet to compare with.",
        )
    intended = [Intended(logged_in(host.plan), record) for host in chosen]
    asked = [
        hosts.Asked(
            host.login,
            questions(this, key=key, deep=deep),
            sudo=host.with_sudo,
            limit_s=hosts.DEEP_LIMIT_S if deep else hosts.LIMIT_S,
        )
        for host, this in zip(chosen, intended, strict=True)
    ]
    return intended, asked


def judge(
    name: str, intended: Sequence[Intended], taken: Sequence[hosts.Taken], *, key: bytes
) -> Report:
    """What the snapshots of an inventory's hosts say. Pure."""
    unknown: list[tuple[str, str]] = []
    compared = []
    plans = {this.plan.name: this for this in intended}
    pairs = [(this, each) for this, each in zip(intended, taken, strict=True)]
    for this, each in pairs:
        if each.snapshot is None:
            unknown.append((each.host, each.fault))
            continue
        for reader, why in each.snapshot["faults"].items():
            unknown.append((each.host, f"{reader.partition('.')[0]}: {why}"))
        compared.append(_host(this, each, key))
    free = frozenset(_free([this for this, each in pairs if each.snapshot is not None], compared))
    facts = {host.name: host.facts for host in compared}
    compared = [
        replace(host, expected=(*host.expected, *shared_keys(plans[host.name], facts)), free=free)
        for host in compared
    ]
    return Report(
        name,
        tuple(this.plan.name for this in intended),
        tuple(differences(compared)),
        tuple(unknown),
    )


def _host(this: Intended, taken: hosts.Taken, key: bytes) -> Host:
    assert taken.snapshot is not None
    faults = taken.snapshot["faults"]
    engines = taken.snapshot["answers"].get("environments", environments.UNASKED)
    seconds, within = taken.offset
    certain = max(0.0, abs(seconds) - within) * (1 if seconds > 0 else -1)
    facts = {kind: dict(items) for kind, items in taken.snapshot["facts"].items()}
    for kind, items in environments.facts(this, engines).items():
        facts.setdefault(kind, {}).update(items)
    facts["clock offset"] = {"seconds": f"{certain:.1f}"}
    if named(KINDS[DEPLOYED].reader) not in faults and not is_deployed_to(facts):
        # All that it lacks is one thing, and no other host is to be like it.
        lacks = Expectation(DEPLOYED, "on this host", "deployed")
        return Host(this.plan.name, {}, (lacks,), frozenset(KINDS) - {DEPLOYED})
    return Host(
        this.plan.name,
        facts,
        tuple(expected(this, Seen(facts, key))),
        frozenset(kind for kind, about in KINDS.items() if named(about.reader) in faults),
        differs=tuple(this.plan.settings.differs),
    )


def _free(intended: Sequence[Intended], compared: Sequence[Host]) -> Iterator[tuple[str, str]]:
    """What the inventory itself asks to differ between these hosts."""
    settings = [this.plan.settings for this in intended]
    if len({this.engine_id if this.engine_spec else "" for this in intended}) > 1:
        yield from ((kind, "*") for kind in ("engine", "engine package"))
    if len({str(each.tools) for each in settings}) > 1:
        yield "tools package", "*"
    if len({each.proxy for each in settings}) > 1:
        yield from (("docker", name) for name in ("HttpProxy", "HttpsProxy", "NoProxy"))
    packages = [each.packages for each in settings]
    if any(set(each) != set(packages[0]) for each in packages):
        yield from (("apt package", name) for names in packages for name in names)
        # Who installs other packages has other dependencies of them, too.
        for host in compared:
            yield from (("apt package", name) for name in host.facts.get("apt automatic", {}))
    named = [[person.name for person in people(each)] for each in settings]
    odd = {name for names in named for name in names if any(name not in each for each in named)}
    for kind in ("account", "account home", "account shell", "password", "group"):
        yield from ((kind, name) for name in odd)
    # Made by the first start of an engine, on whichever host it is started.
    units = {unit.removesuffix(".service") for this in intended for unit in this.model_units}
    yield from (("volume", f"{unit}-cache") for unit in units)
    for host in compared:
        for kind in ("member", "login key"):
            for item in host.facts.get(kind, {}):
                if item.replace(":", " ").split()[0] in odd:
                    yield kind, item
