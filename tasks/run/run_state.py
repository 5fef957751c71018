"""State that all tasks of one run share: each host's plan, the pins, the facts of preflight."""

from __future__ import annotations

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
from lockstep.deploy.empty_hosts import EmptyHost, empty_hosts
from lockstep.deploy.events import Ready, RunRefusal, RunStart
from lockstep.deploy.inputs import inputs
from lockstep.deploy.plan import plan_hosts
from lockstep.deploy.questions import questions
from lockstep.deploy.summary import findings_table
from lockstep.files.managed_file import ManagedFile
from lockstep.fit import catalogue
from lockstep.fleet.hosts import WAIT
from lockstep.host.desired_state import DesiredState
from lockstep.host.keys_shared_by_hosts import SharedKey
from lockstep.inventory import cluster_join, inventory_file, pyinfra_keys
from lockstep.inventory.host import HostPlan
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile, pins
from lockstep.lock.lock_items import wanted_items
from lockstep.tasks.run import (
    deploy_lock,
    events_for_parent,
    failed_host_rollback,
    log_filter,
    operation_turns,
    run_report,
    ssh_connection,
)
from lockstep.tasks.run import reader_answers as facts
from lockstep.units.tls_unit import GIVEN


class DeployRefusal(PyinfraError):
    """The run ends before the first change, with a message for the operator."""


_lock = threading.Lock()
_runs: dict[str, DesiredState] = {}
_leases: dict[str, dict[str, Any]] = {}
# Secrets for each host.
_secrets: dict[str, list[ManagedFile]] = {}
# Path of each shared key → the host that gives it to the others.
_givers: dict[str, str] = {}
# Facts of preflight for each host that answered.
_answers: dict[str, dict[str, Any]] = {}
_refusals: list[DeployRefusal] = []
# Tables of findings, as they were shown.
_tables: list[str] = []


def current_lease() -> dict[str, Any] | None:
    """Return the lease by which the current host copies from its peers; None: nothing to copy."""
    current_desired_state()
    return _leases.get(host.name)


def secret_files() -> list[ManagedFile]:
    """Return the secrets that this run brings to the current host."""
    current_desired_state()
    return _secrets[host.name]


def key_giver(key: SharedKey) -> str:
    """Return the host that gives a key to the others, and makes it where it lacks it.

    It is chosen before anything is touched: a host that fails later may be the one that has the
    key.
    """
    current_desired_state()
    return _givers[key.path]


def stale_leases(*, ending: bool) -> list[str]:
    """Return the leases of earlier deploys on the current host that are to be ended now.

    They are ended as the run ends, for a job of theirs may go on copying. Where the inventory
    forbids copying, they are ended at once.
    """
    leases: list[str] = _answers.get(host.name, {}).get("leases", [])
    return leases if current_desired_state().plan.settings.copying == ending else []


def adopted_containers() -> list[str]:
    """Return the foreign containers on the current host that its inventory has us remove."""
    docker = _answers.get(host.name, {}).get("docker", {})
    return list(preflight.containers_to_adopt(current_desired_state().plan, docker))


def current_desired_state() -> DesiredState:
    """Return the current host's part of this run; a task that runs alone begins the run itself."""
    if host.name not in _runs:
        begin_run()
    return _runs[host.name]


def begin_run() -> None:
    """Plan all hosts, resolve what has no pin yet, and refuse what cannot work.

    This runs once for all hosts, before the first change on any; the other hosts wait for it.

    Raises:
        DeployRefusal: a finding that stops the deploy; nothing was touched.
    """
    with _lock:
        if _runs:
            return
        if _refusals:
            raise _refusals[0]
        try:
            _begin_run()
        except DeployRefusal as refusal:
            events_for_parent.send_event(RunRefusal("\n\n".join((*_tables, str(refusal)))))
            deploy_lock.release_all_hosts("refused, nothing was touched")
            _refusals.append(refusal)
            raise


class _Gate(BaseStateCallback):
    """A callback that asks before the first operation whether this run is to go on."""

    has_asked = False

    def operation_start(self, state: Any, op_hash: str) -> None:
        if not self.has_asked and not events_for_parent.ask_parent_program(Ready()):
            deploy_lock.release_all_hosts("not agreed to, nothing was touched")
            refusal = DeployRefusal("Nobody agreed to it. Nothing was touched on any host.")
            events_for_parent.send_event(RunRefusal(str(refusal)))
            raise refusal
        self.has_asked = True


def _begin_run() -> None:
    run_report.collect_failures(state)
    log_filter.leave_out_unchanged_operations(state)
    if events_for_parent.has_listener():
        events_for_parent.send_event(
            RunStart([spark.name for spark in state.inventory if spark in state.active_hosts])
        )
        state.add_callback_handler(_Gate())
        state.add_callback_handler(events_for_parent.OperationEvents())
    state.add_callback_handler(deploy_lock.LockEnd())
    state.add_callback_handler(failed_host_rollback.FailedHosts())
    try:
        hosts = [spark for spark in state.inventory if spark in state.active_hosts]
        is_changing = deploy_lock.is_lock_needed()
        if is_changing and (obstacle := operation_turns.option_against_turns(hosts)):
            raise DeployRefusal(
                f"{obstacle} cannot be used: the deploy itself says which host goes when; hosts "
                "whose model is hot go one by one.\nNothing was touched on any host. Remedy: "
                f"leave it out, or give --parallel {len(hosts)}."
            )
        plans = _plans(hosts)
        path = lock_path(list(plans.values()))
        lock = lockfile.load(path)
        full_lock = _judge_and_complete_pins(list(plans.values()), lock, path)
        desired_states = {
            spark: DesiredState(logged_in(plan), full_lock) for spark, plan in plans.items()
        }
        for desired_state in desired_states.values():
            _secrets[desired_state.plan.name] = [
                spark.secret_file() for spark in desired_state.uploaded_secrets
            ]
    except LockstepError as fault:
        raise DeployRefusal(paragraph(f"{fault}\nNothing was touched on any host.")) from None
    answers = _lock_read_and_judge_hosts(desired_states)
    _leases.update(copying.leases(list(_hosts_able_to_copy(plans, answers)), full_lock))
    _answers.update({spark.name: answer for spark, answer in answers.items()})
    run_report.act_at_successful_end(
        lambda: lockfile.record_silent_images(path, full_lock, run_report.silent_images())
    )
    if events_for_parent.has_listener():
        earlier_hosts = lockfile.deployed_with(lockfile.deployed_path(path))
        _send_empty_hosts_events({spark: desired_states[spark] for spark in answers}, earlier_hosts)
    of_hosts = {
        desired_state.plan.name: inputs(desired_state) for desired_state in desired_states.values()
    }
    run_report.act_at_successful_end(lambda: lockfile.record_deployed(path, full_lock, of_hosts))
    for spark in answers:
        newest = facts.reader_answer("deploy_records.generation", spark) or {}
        is_same = newest.get("digest") == desired_states[spark].generation_document["digest"]
        run_report.outcome_of_host(spark.name).generation = "new" if is_same else "old"
    _runs.update({spark.name: desired_state for spark, desired_state in desired_states.items()})


def _send_empty_hosts_events(
    desired_states: Mapping[Any, DesiredState], earlier_hosts: Collection[str]
) -> None:
    """Tell the program that started this run which hosts are not deployed to, or no more."""
    hosts = {
        spark.name: EmptyHost(
            desired_state,
            _answers[spark.name],
            facts.reader_answer("files", spark) or {},
            [peer["name"] for peer in _leases.get(spark.name, {}).get("peers", ())],
            empty=facts.reader_answer("deploy_records.generation", spark) == {},
            was_deployed=spark.name in earlier_hosts,
        )
        for spark, desired_state in desired_states.items()
    }
    for event in empty_hosts(hosts):
        events_for_parent.send_event(event)


def _data_of(of: Any) -> dict[str, Any]:
    """Return a host's data; pyinfra includes the private names of a group data file."""
    data: dict[str, Any] = of.data.dict()
    return {key: value for key, value in data.items() if not pyinfra_keys.is_private(key)}


def _plans(hosts: list[Any]) -> dict[Any, HostPlan]:
    """Return the plan of each host; of a cluster all members are read, also those left out now."""
    folder = inventory_file.folder_of(_inventory_path())
    every = [
        inventory_file.plan(spark.name, _data_of(spark), folder=folder) for spark in state.inventory
    ]
    joined_plans = {plan.name: plan for plan in cluster_join.join_clusters(every, "the inventory")}
    return {spark: joined_plans[spark.name] for spark in hosts}


def lock_path(plans: Sequence[HostPlan]) -> Path:
    """Return the path of the inventory's lock file."""
    return inventory_file.lock_path(_inventory_path(), plans)


def _inventory_path() -> Path:
    """Return the inventory file; for hosts of the command line, a path where one could be."""
    files = [spark.data.get(INVENTORY_FILE) for spark in state.inventory]
    return Path(next(filter(None, files), Path(state.cwd) / "hosts.py"))


def _resolve_missing_pins(plans: list[HostPlan], lock: pins.Pins, path: Path) -> pins.Pins:
    every = wanted_items([(plan.settings, plan.models) for plan in plans])
    if not pins.missing(every, lock):
        return lock
    # The import takes a while, and most deploys have nothing to resolve.
    from lockstep.lock.resolve import Network, resolve

    why = "does not hold yet" if path.exists() else "shall hold; there is no lock yet"
    logger.info(f"--> Resolving what {path.name} {why}...")
    first = logged_in(plans[0]).settings
    full_lock = resolve(
        every,
        lock,
        network=Network(first.sources, first.proxy),
        token=first.hub_token,
        report=lambda line: logger.info(f"    {line}"),
    )
    lockfile.save(path, full_lock)
    logger.info(f"    written to {path.name}")
    run_report.record_closing_text(
        plans[0].name,
        f"{path.name} has new entries, and what this deploy installs is exact by them alone: "
        "keep it under version control.",
    )
    return full_lock


def _lock_read_and_judge_hosts(
    desired_states: dict[Any, DesiredState],
) -> dict[Any, dict[str, Any]]:
    """Return preflight's facts of each host that answered, if no error stands."""
    answers: dict[Any, dict[str, Any]] = {}

    def read(spark: Any, desired_state: DesiredState) -> str:
        # Answers from before this run waited are of no use, the less so where it fails now.
        answers.pop(spark, None)
        deploy_lock.request_lock(spark)
        # The lock comes first: facts read before it is held may come from the middle of another
        # deploy.
        every = {**deploy_lock.lock_question(), **questions(desired_state)}
        try:
            if not facts.ask_all_questions(spark, every):
                return ""
            if other_deploy := deploy_lock.other_deploy_text(spark):
                return other_deploy
            if deploy_lock.has_waited_for_other_deploy(spark):
                facts.ask_all_questions(spark, every)
            host, foreign = (
                facts.reader_answer("preflight", spark),
                facts.reader_answer("deploy_records.foreign_obstacles", spark),
            )
        except PyinfraError:
            # All hosts have failed, and their reasons were said.
            return ""
        if host is not None and foreign is not None and spark in state.active_hosts:
            answers[spark] = {**host, "foreign": foreign}
        return ""

    def all_read() -> dict[str, str]:
        greenlets = {
            spark: gevent.spawn(read, spark, desired_state)
            for spark, desired_state in desired_states.items()
        }
        gevent.joinall(greenlets.values())
        other_deploys = {spark.name: task.value for spark, task in greenlets.items() if task.value}
        if not (answers or other_deploys):
            # Without a host there is nothing to do, and no operation to print.
            raise DeployRefusal("no host can be asked what it is; nothing was touched on any host.")
        return other_deploys

    try:
        deploys_by_host = deploy_lock.wait_for_other_deploys(all_read)
    except LockstepError as fault:
        raise DeployRefusal(paragraph(str(fault))) from None
    if deploys_by_host:
        raise DeployRefusal(_occupied_message(deploys_by_host))
    for spark in answers:
        if previous_end := deploy_lock.previous_deploy_end(spark):
            logger.warning(
                f"{spark.print_prefix}the deploy before did not end well: {previous_end}"
            )
    lacking = [
        spark.name
        for spark in failed_host_rollback.hosts_with_rollout_all(state)
        if spark not in answers
    ]
    if lacking:
        raise DeployRefusal(
            f'rollout is "all", and these cannot be asked: {", ".join(lacking)}.\nNothing was '
            "touched on any host. Remedy: mend them, or leave them out with --limit."
        )
    standing: list[Finding] = []
    waived_findings: list[Finding] = []
    for spark, desired_state in desired_states.items():
        if spark not in answers:
            continue
        given_texts = {file.path: file.text for file in _secrets[spark.name]}
        if GIVEN["key"] in given_texts:
            chain, key = (given_texts[path] for path in GIVEN.values())
            answers[spark]["tls"] = preflight.given_certificate(chain, key, time.time())
        findings = [
            *preflight.findings(desired_state.plan, desired_state.pins, answers[spark]),
            *preflight.exchanged_hosts(spark.name, answers[spark], list(state.inventory.hosts)),
        ]
        stands, set_aside = split_waived(findings, desired_state.plan.settings.waive)
        standing += stands
        waived_findings += set_aside
    for finding in standing:
        if finding.code == "backup-here":
            # Repeated at the end, where people read it.
            run_report.record_closing_text(
                finding.subject, f"{finding.subject}: {finding.message}. {finding.remedy}"
            )
    standing += preflight.clones({spark.name: read for spark, read in answers.items()})
    files = {
        spark.name: present_files
        for spark in answers
        if (present_files := facts.reader_answer("files", spark)) is not None
    }
    keys_by_host = {
        spark.name: desired_state.shared_keys
        for spark, desired_state in desired_states.items()
        if spark.name in files
    }
    standing += preflight.keys_elsewhere(keys_by_host, files)
    standing += preflight.keys_apart(keys_by_host, files)
    _givers.update(
        {key.path: key.giving_host(files) for keys in keys_by_host.values() for key in keys}
    )
    _show_findings_or_refuse(standing, waived_findings, "preflight")
    return answers


def _occupied_message(other_deploys: Mapping[str, str]) -> str:
    lines = [f"{name}: {deploy}" for name, deploy in other_deploys.items()]
    return paragraph(
        "\n".join(
            (
                *("another deploy is under way:", *lines, "Nothing was touched on any host."),
                f"Remedy: wait for its end, or let this one wait for it: {WAIT}=600 (seconds).",
            )
        )
    )


def _hosts_able_to_copy(
    plans: dict[Any, HostPlan], answers: dict[Any, Any]
) -> Iterator[copying.CopyingHost]:
    for spark, plan in plans.items():
        fabric = plan.settings.fabric
        address = plan.settings.fabric_address or ssh_connection.host_ip_address(spark)
        if spark not in answers or not address or not plan.settings.copying:
            continue
        # Without the cable no other host reaches it there.
        if fabric.socket_of(plan.settings.fabric_address) not in answers[spark]["fabric"]["absent"]:
            yield copying.CopyingHost(plan, answers[spark], address)


def _judge_and_complete_pins(plans: list[HostPlan], known_pins: pins.Pins, path: Path) -> pins.Pins:
    """Return the lock with missing entries added; DeployRefusal for a finding before or after that.

    Only a lock has an image's entry point, and a checkpoint's experts.
    """
    _show_findings_or_refuse(
        *_findings_of_plan(plans, known_pins), "the plan", shown_by="lockstep plan"
    )
    full_lock = _resolve_missing_pins(plans, known_pins, path)
    if full_lock != known_pins:
        findings, _ = _findings_of_plan(plans, full_lock)
        errors = [finding for finding in findings if finding.severity == "error"]
        _show_findings_or_refuse(errors, (), "the plan with the new lock")
    return full_lock


def _findings_of_plan(
    plans: list[HostPlan], lock: pins.Pins
) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """Return the findings against the plan itself (fit, licences, flags …), and the waived ones."""
    fleet_plan = plan_hosts(plans, lock, catalogue.load(catalogue.FOLDER))
    return fleet_plan.findings, fleet_plan.waived_findings


def _show_findings_or_refuse(
    findings: Sequence[Finding], waived_findings: Sequence[Finding], by: str, shown_by: str = ""
) -> None:
    """Show findings; end the run when one is an error that the inventory does not waive.

    `shown_by` is the command that shows warnings too; "" where there is none.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if findings and not errors and shown_by:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        logger.info(f"--> {len(findings)} warning(s) by {by} (`{shown_by}` shows them): {codes}")
    shown_findings = errors if shown_by else findings
    if shown_findings or waived_findings:
        _tables.append(findings_table(shown_findings, waived_findings))
        logger.info(f"\n{_tables[-1]}")
    if errors:
        raise DeployRefusal(
            f"{by} found what would make this deploy fail; nothing was touched on any host.\n    "
            "Mend it, or deploy to the other hosts with --limit HOST."
        )
