"""A whole diff of an inventory: questions, snapshots, differences, unreadable parts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lockstep.core.errors import InventoryError
from lockstep.drift import hosts
from lockstep.drift.compare import ComparedHost, Difference, differences
from lockstep.drift.subjects import KINDS, all_expectations, environments, questions
from lockstep.drift.subjects.files import DEPLOYED, is_deployed_to
from lockstep.files.remote_exec import reader_name
from lockstep.fleet.hosts import at_once, choose
from lockstep.host.desired_state import DesiredState
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile, pins
from lockstep.lock.lock_items import wanted_items
from lockstep.resources import files, units
from lockstep.resources.fact_comparison import Expectation, SubjectView
from lockstep.system.accounts import people
from lockstep.system.base_files import absent_files

SAME, DRIFT, UNKNOWN = 0, 1, 2
#: The most differences that are left on a host for its page.
SHOWN = 40


@dataclass(frozen=True)
class Report:
    """The result of a diff.

    Attributes:
        inventory: The inventory's name.
        hosts: Names of the hosts, in the inventory's order.
        differences: Worst first.
        unknown: Pairs of host and the fact that could not be told, with the reason.
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
    """Return the report on the hosts of an inventory file.

    Args:
        limit: Only these hosts; () all.
        deep: True to read every byte of weights and packages.
        password: For sudo on the hosts; None if it asks for none.

    Raises:
        LockstepError: the inventory is wrong, lacks a host of ``limit``, or is not locked whole.
    """
    key = secrets.token_bytes(32)
    desired_states, host_questions = read(path, limit=limit, key=key, deep=deep)
    host_questions = [replace(host_question, password=password) for host_question in host_questions]
    snapshots = hosts.take_all(host_questions)
    drift_report = judge(path.stem, desired_states, snapshots, key=key)
    answering = [
        host_question
        for host_question, answer in zip(host_questions, snapshots, strict=True)
        if answer.snapshot
    ]
    at_once(
        lambda host_question: hosts.leave(
            host_question, of_host(drift_report, host_question.login.name)
        ),
        answering,
    )
    return drift_report


def of_host(report: Report, name: str) -> dict[str, Any]:
    """Return the report's part about one host, in the form of its page (`records.last_diff`).

    It has at most `SHOWN` differences; "more" is the number of those left out.
    """
    of = [item for item in report.differences if name in item.hosts]
    keys = ("severity", "kind", "item", "how")
    return {
        "differences": [{key: getattr(item, key) for key in keys} for item in of[:SHOWN]],
        "more": max(0, len(of) - SHOWN),
        "unknown": [why for host, why in report.unknown if host == name],
    }


def read(
    path: Path, *, limit: Sequence[str] = (), key: bytes, deep: bool = False
) -> tuple[list[DesiredState], list[hosts.HostQuestion]]:
    """Return the desired states of an inventory's hosts, and the questions to the hosts.

    Raises:
        LockstepError: as `diff` does.
    """
    every, selected_hosts = choose(path, limit)
    plans = [host.plan for host in every]
    lock_path = inventories.lock_path(path, plans)
    record = lockfile.load(lock_path)
    missing = pins.missing(wanted_items([(plan.settings, plan.models) for plan in plans]), record)
    if missing:
        singular = "1 thing that this inventory asks for is"
        many = f"{len(missing)} things that this inventory asks for are"
        raise InventoryError(
            f"{singular if len(missing) == 1 else many} not locked yet",
            where=str(lock_path),
            remedy="Deploy first: there is nothing yet to compare with.",
        )
    desired_states = [DesiredState(logged_in(host.plan), record) for host in selected_hosts]
    host_questions = [
        hosts.HostQuestion(
            host.login,
            questions(desired_state, key=key, deep=deep),
            sudo=host.with_sudo,
            limit_s=hosts.DEEP_LIMIT_S if deep else hosts.LIMIT_S,
        )
        for host, desired_state in zip(selected_hosts, desired_states, strict=True)
    ]
    return desired_states, host_questions


def judge(
    name: str,
    desired_states: Sequence[DesiredState],
    snapshots: Sequence[hosts.HostSnapshot],
    *,
    key: bytes,
) -> Report:
    """Return the report from the snapshots of an inventory's hosts. Pure."""
    unknown: list[tuple[str, str]] = []
    compared_hosts = []
    plans = {desired_state.plan.name: desired_state for desired_state in desired_states}
    pairs = [
        (desired_state, snapshot)
        for desired_state, snapshot in zip(desired_states, snapshots, strict=True)
    ]
    for desired_state, snapshot in pairs:
        if snapshot.snapshot is None:
            unknown.append((snapshot.host, snapshot.fault))
            continue
        for reader, why in snapshot.snapshot["faults"].items():
            unknown.append((snapshot.host, f"{reader.partition('.')[0]}: {why}"))
        compared_hosts.append(_host(desired_state, snapshot, key))
    free = frozenset(
        _free(
            [desired_state for desired_state, snapshot in pairs if snapshot.snapshot is not None],
            compared_hosts,
        )
    )
    facts = {host.name: host.facts for host in compared_hosts}
    compared_hosts = [
        replace(
            host,
            expectations=(
                *host.expectations,
                *files.shared_key_expectations(plans[host.name], facts),
            ),
            free=free,
        )
        for host in compared_hosts
    ]
    return Report(
        name,
        tuple(desired_state.plan.name for desired_state in desired_states),
        tuple(differences(compared_hosts)),
        tuple(unknown),
    )


def _host(desired_state: DesiredState, snapshot: hosts.HostSnapshot, key: bytes) -> ComparedHost:
    assert snapshot.snapshot is not None
    faults = snapshot.snapshot["faults"]
    engines = snapshot.snapshot["answers"].get("environments", environments.UNASKED)
    seconds, within = snapshot.offset
    certain = max(0.0, abs(seconds) - within) * (1 if seconds > 0 else -1)
    facts = {kind: dict(items) for kind, items in snapshot.snapshot["facts"].items()}
    answers = snapshot.snapshot["answers"]
    shared_paths = [shared_key.path for shared_key in desired_state.shared_keys]
    for derived_facts in (
        units.unit_facts(answers.get("units", {}), desired_state.paths),
        files.file_facts(
            answers.get("files", {}), shared_paths, absent_files(desired_state.plan.settings)
        ),
        environments.facts(desired_state, engines),
    ):
        for kind, items in derived_facts.items():
            facts.setdefault(kind, {}).update(items)
    facts["clock offset"] = {"seconds": f"{certain:.1f}"}
    if reader_name(KINDS[DEPLOYED].reader) not in faults and not is_deployed_to(facts):
        # Everything that it lacks counts as one difference, and no other host is compared with it.
        lacks = Expectation(DEPLOYED, "on this host", "deployed")
        return ComparedHost(desired_state.plan.name, {}, (lacks,), frozenset(KINDS) - {DEPLOYED})
    return ComparedHost(
        desired_state.plan.name,
        facts,
        tuple(all_expectations(desired_state, SubjectView(facts, key))),
        frozenset(kind for kind, about in KINDS.items() if reader_name(about.reader) in faults),
        differs=tuple(desired_state.plan.settings.differs),
    )


def _free(
    desired_states: Sequence[DesiredState], compared_hosts: Sequence[ComparedHost]
) -> Iterator[tuple[str, str]]:
    """Yield the facts in which the inventory itself makes these hosts differ."""
    settings = [desired_state.plan.settings for desired_state in desired_states]
    if (
        len(
            {
                desired_state.engine_id if desired_state.engine_spec else ""
                for desired_state in desired_states
            }
        )
        > 1
    ):
        yield from ((kind, "*") for kind in ("engine", "engine package"))
    if len({str(setting.tools) for setting in settings}) > 1:
        yield "tools package", "*"
    if len({setting.proxy for setting in settings}) > 1:
        yield from (("docker", name) for name in ("HttpProxy", "HttpsProxy", "NoProxy"))
    for setting in settings:
        if setting.fabric.netplan:
            yield from (("network", f"{name} mtu") for name in setting.fabric.interfaces)
    packages = [setting.packages for setting in settings]
    if any(set(setting) != set(packages[0]) for setting in packages):
        yield from (("apt package", name) for names in packages for name in names)
        # A host with other packages also has other dependencies.
        for host in compared_hosts:
            yield from (("apt package", name) for name in host.facts.get("apt automatic", {}))
    people_names = [[person.name for person in people(setting)] for setting in settings]
    odd = {
        name
        for names in people_names
        for name in names
        if any(name not in setting for setting in people_names)
    }
    for kind in ("account", "account home", "account shell", "password", "group"):
        yield from ((kind, name) for name in odd)
    # The first start of an engine makes these, on any host.
    model_units = {
        unit.removesuffix(".service")
        for desired_state in desired_states
        for unit in desired_state.model_units
    }
    yield from (("volume", f"{unit}-cache") for unit in model_units)
    for host in compared_hosts:
        for kind in ("member", "login key"):
            for item in host.facts.get(kind, {}):
                if item.replace(":", " ").split()[0] in odd:
                    yield kind, item
