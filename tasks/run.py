"""Shared state of all tasks of one run: each host's plan, the pins, the facts of preflight."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
from pyinfra import host, logger, state
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback

from lockstep import preflight
from lockstep.core.errors import LockstepError, paragraph
from lockstep.core.findings import Finding, split_waived
from lockstep.deploy import copying
from lockstep.deploy.checked import INVENTORY_FILE
from lockstep.deploy.empty_hosts import Host, empty_hosts
from lockstep.deploy.events import Ready, Refused, Started
from lockstep.deploy.inputs import inputs
from lockstep.deploy.plan import plan_hosts
from lockstep.deploy.questions import questions
from lockstep.deploy.summary import findings_table
from lockstep.files.managed_file import ManagedFile
from lockstep.fit import catalogue
from lockstep.fleet.hosts import LOCK, WAIT
from lockstep.host.intended import Intended
from lockstep.host.shared_keys import SharedKey
from lockstep.inventory import cluster_join, inventory_file, pyinfra_keys
from lockstep.inventory.host import HostPlan
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile, pins
from lockstep.lock.wanted import wanted
from lockstep.tasks import all_or_none, connection, deploy_lock, events, log_filter, report, turns
from lockstep.tasks.facts import host as facts
from lockstep.units.tls_unit import GIVEN


class Refusal(PyinfraError):
    """The run ends before the first change, with a message for the operator."""


_lock = threading.Lock()
_runs: dict[str, Intended] = {}
_leases: dict[str, dict[str, Any]] = {}
# The secrets that each host is brought.
_given: dict[str, list[ManagedFile]] = {}
# Path of each key that several hosts have → the host that gives it to the others.
_givers: dict[str, str] = {}
# What preflight learned of each host that answered.
_found: dict[str, dict[str, Any]] = {}
_refused: list[Refusal] = []
# Tables of findings, as they were shown.
_shown: list[str] = []


def lease() -> dict[str, Any] | None:
    """What lets the current host copy from the others of this run; None: nothing to copy."""
    current()
    return _leases.get(host.name)


def given() -> list[ManagedFile]:
    """The secrets that this run brings to the current host."""
    current()
    return _given[host.name]


def giver(key: SharedKey) -> str:
    """The host that gives a key to the others, and makes it where it lacks it.

    It is settled before anything is touched: a host that fails later may be the one that has it.
    """
    current()
    return _givers[key.path]


def stale_leases(*, ending: bool) -> list[str]:
    """Leases that earlier deploys left on the current host, to be ended as this run begins or ends.

    As it ends, for a job of theirs may go on copying; at once where the inventory forbids that.
    """
    found: list[str] = _found.get(host.name, {}).get("leases", [])
    return found if current().plan.settings.copying == ending else []


def adopted_containers() -> list[str]:
    """Containers on the current host that are not ours, and that its inventory has us remove."""
    docker = _found.get(host.name, {}).get("docker", {})
    return list(preflight.adopted(current().plan, docker))


def current() -> Intended:
    """The current host's part of this run; a task that runs alone begins the run itself."""
    if host.name not in _runs:
        begin()
    return _runs[host.name]


def begin() -> None:
    """Plan all hosts, resolve what has no pin yet, and refuse what cannot work.

    Runs once for all hosts, before the first change on any; the other hosts wait for it.

    Raises:
        Refusal: a finding that stops the deploy; nothing was touched.
    """
    with _lock:
        if _runs:
            return
        if _refused:
            raise _refused[0]
        try:
            _begin()
        except Refusal as refusal:
            events.say(Refused("\n\n".join((*_shown, str(refusal)))))
            deploy_lock.released("refused, nothing was touched")
            _refused.append(refusal)
            raise


class _Gate(BaseStateCallback):
    """Asks before the first operation whether this run is to go on."""

    asked = False

    def operation_start(self, state: Any, op_hash: str) -> None:
        if not self.asked and not events.ask(Ready()):
            deploy_lock.released("not agreed to, nothing was touched")
            refusal = Refusal("Nobody agreed to it. Nothing was touched on any host.")
            events.say(Refused(str(refusal)))
            raise refusal
        self.asked = True


def _begin() -> None:
    report.watch(state)
    log_filter.quieten_log(state)
    if events.heard():
        events.say(Started([each.name for each in state.inventory if each in state.active_hosts]))
        state.add_callback_handler(_Gate())
        state.add_callback_handler(events.Teller())
    state.add_callback_handler(deploy_lock.Ends())
    state.add_callback_handler(all_or_none.AllOrNone())
    try:
        hosts = [each for each in state.inventory if each in state.active_hosts]
        if option := turns.obstacle(len(hosts)):
            raise Refusal(
                f"{option} cannot be used: the deploy itself says which host goes when; hosts "
                "whose model is hot go one by one.\nNothing was touched on any host. "
                f"Remedy: leave such options out, or --parallel {len(hosts)}."
            )
        plans = _plans(hosts)
        path = lock_path(list(plans.values()))
        known = lockfile.load(Path(os.environ.get(LOCK) or path))
        resolved = _judge_and_lock(list(plans.values()), known, path)
        intended = {each: Intended(logged_in(plan), resolved) for each, plan in plans.items()}
        for this in intended.values():
            _given[this.plan.name] = [each.fetched() for each in this.given_secrets]
    except LockstepError as fault:
        raise Refusal(paragraph(f"{fault}\nNothing was touched on any host.")) from None
    found = _refuse_findings(intended)
    _leases.update(copying.leases(list(_members(plans, found)), resolved))
    _found.update({each.name: answer for each, answer in found.items()})
    report.when_whole(lambda: lockfile.answered(path, resolved, report.unanswered()))
    if events.heard():
        before = lockfile.deployed_with(lockfile.deployed_path(path))
        _say_empty_hosts({each: intended[each] for each in found}, before)
    of_hosts = {this.plan.name: inputs(this) for this in intended.values()}
    report.when_whole(lambda: lockfile.deployed(path, resolved, of_hosts))
    for each in found:
        newest = facts.ask("records.generation", each) or {}
        same = newest.get("digest") == intended[each].generation["digest"]
        report.of(each.name).generation = "new" if same else "old"
    _runs.update({each.name: this for each, this in intended.items()})


def _say_empty_hosts(intended: Mapping[Any, Intended], before: Collection[str]) -> None:
    """Tell the program that started this run which hosts have nothing yet, or no more."""
    hosts = {
        each.name: Host(
            this,
            _found[each.name],
            facts.ask("files", each) or {},
            [peer["name"] for peer in _leases.get(each.name, {}).get("peers", ())],
            empty=facts.ask("records.generation", each) == {},
            known=each.name in before,
        )
        for each, this in intended.items()
    }
    for event in empty_hosts(hosts):
        events.say(event)


def _said_of(of: Any) -> dict[str, Any]:
    """A host's data; pyinfra hands on what a file of group data has for itself, too."""
    data: dict[str, Any] = of.data.dict()
    return {key: value for key, value in data.items() if not pyinfra_keys.is_private(key)}


def _plans(hosts: list[Any]) -> dict[Any, HostPlan]:
    """The plan of each host; of a cluster all members are read, also those left out now."""
    folder = inventory_file.folder_of(_inventory())
    every = [
        inventory_file.plan(each.name, _said_of(each), folder=folder) for each in state.inventory
    ]
    found = {plan.name: plan for plan in cluster_join.joined(every, "the inventory")}
    return {each: found[each.name] for each in hosts}


def lock_path(plans: Sequence[HostPlan]) -> Path:
    """The lock file of the inventory that is deployed to."""
    return inventory_file.lock_path(_inventory(), plans)


def _inventory() -> Path:
    """The inventory file; where hosts were named on the command line, one that could be here."""
    files = [each.data.get(INVENTORY_FILE) for each in state.inventory]
    return Path(next(filter(None, files), Path(state.cwd) / "hosts.py"))


def _resolved(plans: list[HostPlan], known: pins.Pins, path: Path) -> pins.Pins:
    every = wanted([(plan.settings, plan.targets) for plan in plans])
    if not pins.missing(every, known):
        return known
    # It takes a while to import, and most deploys have nothing to resolve.
    from lockstep.lock.resolve import Network, resolve

    why = "does not hold yet" if path.exists() else "shall hold; there is no lock yet"
    logger.info(f"--> Resolving what {path.name} {why}...")
    first = logged_in(plans[0]).settings
    resolved = resolve(
        every,
        known,
        network=Network(first.sources, first.proxy),
        token=first.hub_token,
        report=lambda line: logger.info(f"    {line}"),
    )
    lockfile.save(path, resolved)
    logger.info(f"    written to {path.name}")
    report.news(
        plans[0].name,
        f"{path.name} has new entries, and what this deploy installs is exact by them alone: keep "
        "it under version control.",
    )
    return resolved


def _refuse_findings(intended: dict[Any, Intended]) -> dict[Any, dict[str, Any]]:
    """What preflight learned of each host that answered, if no error of it stands."""
    found: dict[Any, dict[str, Any]] = {}

    def read(each: Any, this: Intended) -> str:
        # What it said before this run waited is of no use, the less so where it fails now.
        found.pop(each, None)
        deploy_lock.sent_for(each)
        # The lock first: what is read before it is held may be of another deploy's middle.
        every = {**deploy_lock.question(), **questions(this)}
        try:
            if not facts.ask_all(each, every):
                return ""
            if other := deploy_lock.other(each):
                return other
            if deploy_lock.waited(each):
                facts.ask_all(each, every)
            host, foreign = facts.ask("preflight", each), facts.ask("records.intruders", each)
        except PyinfraError:
            # It was the last one that had not failed; its reason was said.
            return ""
        if host is not None and foreign is not None and each in state.active_hosts:
            found[each] = {**host, "foreign": foreign}
        return ""

    def all_read() -> dict[str, str]:
        greenlets = {each: gevent.spawn(read, each, this) for each, this in intended.items()}
        gevent.joinall(greenlets.values())
        others = {each.name: task.value for each, task in greenlets.items() if task.value}
        if not (found or others):
            # Without a host there is nothing to do, nor to say of each operation.
            raise Refusal("no host can be asked what it is; nothing was touched on any host.")
        return others

    try:
        others = deploy_lock.patiently(all_read)
    except LockstepError as fault:
        raise Refusal(paragraph(str(fault))) from None
    if others:
        raise Refusal(_occupied(others))
    for each in found:
        if before := deploy_lock.before(each):
            logger.warning(f"{each.print_prefix}the deploy before did not end well: {before}")
    lacking = [each.name for each in all_or_none.of_run(state) if each not in found]
    if lacking:
        raise Refusal(
            f'rollout is "all", and these cannot be asked: {", ".join(lacking)}.\n'
            "Nothing was touched on any host. Remedy: mend them, or leave them out with --limit."
        )
    standing: list[Finding] = []
    waived: list[Finding] = []
    for each, this in intended.items():
        if each not in found:
            continue
        brought = {file.path: file.text for file in _given[each.name]}
        if GIVEN["key"] in brought:
            chain, key = (brought[path] for path in GIVEN.values())
            found[each]["tls"] = preflight.brought(chain, key, time.time())
        findings = [
            *preflight.findings(this.plan, this.pins, found[each]),
            *preflight.exchanged(each.name, found[each], list(state.inventory.hosts)),
        ]
        stands, set_aside = split_waived(findings, this.plan.settings.waive)
        standing += stands
        waived += set_aside
    for finding in standing:
        if finding.code == "backup-here":
            # At the end too, where it is read.
            report.news(finding.subject, f"{finding.subject}: {finding.message}. {finding.remedy}")
    standing += preflight.twins({each.name: read for each, read in found.items()})
    files = {each.name: said for each in found if (said := facts.ask("files", each)) is not None}
    shared = {each.name: this.shared_keys for each, this in intended.items() if each.name in files}
    standing += preflight.keys_elsewhere(shared, files)
    standing += preflight.keys_apart(shared, files)
    _givers.update({key.path: key.giver(files) for keys in shared.values() for key in keys})
    _refuse(standing, waived, "preflight")
    return found


def _occupied(others: Mapping[str, str]) -> str:
    lines = [f"{name}: {who}" for name, who in others.items()]
    return paragraph(
        "\n".join(
            (
                *("another deploy is under way:", *lines, "Nothing was touched on any host."),
                f"Remedy: wait for its end, or let this one wait for it: {WAIT}=600 (seconds).",
            )
        )
    )


def _members(plans: dict[Any, HostPlan], found: dict[Any, Any]) -> Iterator[copying.Member]:
    for each, plan in plans.items():
        fabric = plan.settings.fabric
        address = plan.settings.fabric_address or connection.address(each)
        if each not in found or not address or not plan.settings.copying:
            continue
        # Without the cable nobody reaches it there.
        if fabric.socket_of(plan.settings.fabric_address) not in found[each]["fabric"]["absent"]:
            yield copying.Member(plan, found[each], address)


def _judge_and_lock(plans: list[HostPlan], known: pins.Pins, path: Path) -> pins.Pins:
    """The lock with what had no entry; Refusal for a finding without these, or with them.

    A lock alone knows an image's entry point, and a checkpoint's experts.
    """
    _refuse(*_planned(plans, known), "the plan", shown_by="lockstep plan")
    resolved = _resolved(plans, known, path)
    if resolved != known:
        found, _ = _planned(plans, resolved)
        errors = [each for each in found if each.severity == "error"]
        _refuse(errors, (), "the plan with the new lock")
    return resolved


def _planned(
    plans: list[HostPlan], known: pins.Pins
) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """What speaks against the plan itself (fit, licences, flags …), and what of it is waived."""
    planned = plan_hosts(plans, known, catalogue.load(catalogue.FOLDER))
    return planned.findings, planned.waived


def _refuse(
    findings: Sequence[Finding], waived: Sequence[Finding], by: str, shown_by: str = ""
) -> None:
    """Show findings; end the run when one of them is an error that the inventory does not waive.

    `shown_by` is the command that shows warnings too; "" where nothing else does.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if findings and not errors and shown_by:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        logger.info(f"--> {len(findings)} warning(s) by {by} (`{shown_by}` shows them): {codes}")
    shown = errors if shown_by else findings
    if shown or waived:
        _shown.append(findings_table(shown, waived))
        logger.info(f"\n{_shown[-1]}")
    if errors:
        raise Refusal(
            f"{by} found what would make this deploy fail; nothing was touched on any host.\n"
            "    Mend it, or deploy to the other hosts with --limit HOST."
        )
