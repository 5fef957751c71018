"""Keys that several hosts share, such as those by which members of a cluster know each other.

Each is made on one host and goes to the others only through this process' memory: no command line,
no log and no file here ever holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyinfra import host, state
from pyinfra.api import operation
from pyinfra.connectors.util import CommandOutput

from lockstep.files.managed_file import command
from lockstep.host.keys_shared_by_hosts import SharedKey
from lockstep.resources.files import Answer, future_key_hash, whole_key_hash
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_report, run_state
from lockstep.tasks.run.remote_commands import Commands


@operation()
def make_keys() -> Commands:
    """Make once each key that this host is to give and lacks."""
    keys = run_state.current_desired_state().shared_keys
    missing = [
        key
        for key in keys
        if run_state.key_giver(key) == host.name
        and not whole_key_hash(key, host.name, _file_facts())
    ]
    for key in missing:
        making = MakeKey.of_argv(key.make)
        if not key.key_hash(_file_facts()):
            making.announcement = key.announcement
        yield making
    if missing:
        yield from _restart_users(missing)
    else:
        host.noop("no key is to be made here")


@operation()
def copy_shared_keys() -> Commands:
    """Give this host the keys that other hosts have."""
    changed_keys = []
    for key in run_state.current_desired_state().shared_keys:
        giver = run_state.key_giver(key)
        if giver == host.name:
            continue
        own_hash = whole_key_hash(key, host.name, _file_facts())
        first = _active_host(giver)
        if first is None:
            if own_hash is None:
                yield from remote_commands.fail_host_operation(
                    f"the {key.description} is to come from {giver}, which is not part of this "
                    f"run any more. Remedy: deploy to {', '.join(key.hosts)} together."
                )
            continue
        if own_hash is None or own_hash != future_key_hash(key, first.name, _file_facts(first)):
            changed_keys.append(key)
            taking = CopyKey.of_argv(key.take)
            taking.first, taking.reading = first, ("cat", key.path)
            yield taking
    if changed_keys:
        yield from _restart_users(changed_keys)
    else:
        host.noop("the keys are those of the hosts that made them")


@operation()
def copy_peers_key_changes() -> Commands:
    """Give this host's gateway each person's last key change that another host of the run knows.

    A revocation is such a change. The gateway's program keeps the later of two changes.
    """
    own_changes = _last_changes_by_person(host.name)
    if own_changes is None:
        host.noop("the keys of persons here cannot be read, and stay as they are")
        return
    lacking = False
    for peer in state.inventory:
        if peer.name == host.name or peer not in state.active_hosts:
            continue
        peer_changes = _last_changes_by_person(peer.name) or {}
        if any(
            _is_newer_change(change, own_changes.get(person))
            for person, change in peer_changes.items()
        ):
            lacking = True
            taking = CopyKey.of_argv(command("gateway-keys", "take"))
            taking.first, taking.reading = peer, command("gateway-keys", "list")
            yield taking
    absent = [peer.name for peer in state.inventory if peer not in state.active_hosts]
    if absent and not facts.reader_answer("deploy_records.generation"):
        text = (
            f"{host.name} is new, and {', '.join(absent)} may know keys of persons that it lacks. "
        )
        run_report.record_closing_text(host.name, f"{text}Remedy: `lockstep key list --fix`.")
    if not lacking:
        host.noop("every last change is known here")


def _last_changes_by_person(name: str) -> Mapping[str, Sequence[Any]] | None:
    """Return person → last change that a host knows; None where that is not known."""
    answer = facts.reader_answer(
        "deploy_records.sealed_key_changes_and_fault", state.inventory.get_host(name)
    )
    if answer is None:
        return None
    if answer["fault"]:
        text = f"{name}: keys of persons cannot be read, and its gateway refuses every key: "
        remedy = "move the file away, and run `lockstep key list --fix`"
        run_report.record_closing_text(name, f"{text}{answer['fault']}. Remedy: {remedy}.")
        return None
    changes: dict[str, Sequence[Any]] = answer["changes"]
    return changes


def _is_newer_change(change: Sequence[Any], own_change: Sequence[Any] | None) -> bool:
    """Tell whether a change may have to be taken over; of two at one time the program decides."""
    if own_change is None:
        return True
    *when, seal = change
    *own_time, own_seal = own_change
    return seal != own_seal and when >= own_time


def _restart_users(keys: Iterable[SharedKey]) -> Commands:
    """Restart the running units that read these keys, so that none goes on with an older key."""
    states = facts.reader_answer("units") or {}
    units = dict.fromkeys(unit for key in keys for unit in key.units)
    running = [unit for unit in units if states.get(unit, {}).get("ActiveState") == "active"]
    if running:
        yield remote_commands.changing_command(["systemctl", "restart", *running])


def _active_host(name: str) -> Any:
    """Return a host of this run; None where it is no part of the run, or has failed."""
    peer = state.inventory.get_host(name) if name else None
    return peer if peer in state.active_hosts else None


class MakeKey(remote_commands.ChangingCommand):
    """A command that makes a key, and announces a new one that people's devices must know."""

    announcement: str = ""

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Make the key."""
        is_ok, output = super().send_to_host(state, host, connector_arguments)
        if is_ok and self.announcement:
            run_report.record_closing_text(host.name, self.announcement)
        return is_ok, output


class CopyKey(remote_commands.ChangingCommand):
    """A command that gives a program here the output of another host's, and shows none of it."""

    first: Any = None
    reading: Sequence[str] = ()

    def send_to_host(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        """Read the key on the other host, and write it here."""
        is_ok, output = remote_commands.run_on(self.first, self.reading, is_shown=False)
        if not is_ok:
            why = f"{self.first.name} did not give what `{' '.join(self.reading)}` prints"
            return remote_commands.report_failure(host, why), CommandOutput([])
        connector_arguments["_stdin"] = [output.stdout + "\n"]
        return super().send_to_host(state, host, connector_arguments)


def _file_facts(of: Any = None) -> Answer:
    answer: Answer = facts.reader_answer("files", of)
    return answer
