"""`lockstep rollback`: every Spark returns to the deploy before, by its own journal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import DONE, FINDINGS, ask_first, confirm
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.cli.lock import print_changes
from lockstep.core.errors import LockstepError
from lockstep.core.terminal import console
from lockstep.deploy.inputs import input_changes
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, ask, at_once, choose, read
from lockstep.fleet.webui import Fitting, fitting
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes
from lockstep.lock.pins import Pins
from lockstep.onhost.core.errors import EXIT_NOTHING_HOT
from lockstep.units.scripts import switch_path

_READ_S = 60.0


@dataclass(frozen=True)
class _Target:
    """A deploy to return to.

    Attributes:
        lock: The kept lock of that deploy, and `pins`, its content.
        hosts: Host → the inputs of that deploy (`lockstep.deploy.inputs`).
    """

    lock: Path
    pins: Pins
    hosts: Mapping[str, Any]

    def digest(self, host: Host) -> str:
        """Return the digest of a host's generation then, "" if it had none."""
        return str(self.hosts.get(host.name, {}).get("generation", ""))


@dataclass(frozen=True)
class _HostReturn:
    """A host that returns, and the effects (`rollback_journal.effects_of_return`)."""

    host: Host
    effects: Mapping[str, Any]


@click.command()
@INVENTORY
@click.option(
    "--dry",
    is_flag=True,
    help="Show what would change and be interrupted; change nothing.",
)
@click.option("--yes", is_flag=True, help="Ask nothing.")
@click.option(
    "--data",
    type=click.Choice(["return", "keep"]),
    help="What Open WebUI's older image begins with, without a question.",
)
def rollback(inventory: Path, dry: bool, yes: bool, data: str | None) -> int:
    """Return every Spark, and the lock, to the deploy before.

    Each Spark has noted what was there before its last deploy, and puts that back: models, images,
    engine, settings and Lockstep's own programs. Nothing is downloaded, deployed or resolved. The
    Sparks go one after another. A hot model restarts only if its unit changes, a cluster's always.

    Your files stay. The command names each key of them that differs from then, because the next
    deploy brings it again. If the last deploy did not reach all Sparks, those that it changed
    return from it. Otherwise a second rollback undoes the first. Afterwards the command compares
    each Spark with its record of that generation.

    Exit codes: 0 done; 1 a Spark failed or is not what its record says, or the answer was no; 2
    there is nothing to return to, no terminal for a question, no connection, or wrong use; 130
    ended by Ctrl-C.
    """
    hosts, _ = choose(inventory)
    path = inventories.lock_path(inventory, [host.plan for host in hosts])
    now = lockfile.load(path)
    effects = at_once(lambda host: _read(host, "effects_of_return", None), hosts)
    effects_by_host = {host.name: answer for host, answer in zip(hosts, effects, strict=True)}
    target = _target(path, now, effects_by_host)
    returns = list(_host_returns(hosts, effects_by_host, target))
    print_changes(changes(now, target.pins))
    _print_returns(returns, dry)
    _print_changed_keys(inventory, hosts, target)
    copies = _copies(returns)
    if dry:
        return DONE
    words = _data_words(copies, data)
    question = f"Return {len(returns)} Spark(s) to the deploy before?"
    ask_first(question, yes=yes or not returns, otherwise="--yes returns, --dry only shows")
    if not returns:
        lockfile.save(path, target.pins)
    for number, host_return in enumerate(returns):
        try:
            has_returned = _return_host(host_return, words)
        except KeyboardInterrupt:
            text = f"{host_return.host.name} may still be returning. "
            raise KeyboardInterrupt(text + _state_of_unfinished(returns, number)) from None
        if not has_returned:
            click.echo(_state_of_unfinished(returns, number), err=True)
            return FINDINGS
        # From now on a second rollback goes forward again.
        lockfile.save(path, target.pins)
    has_model = all([_restart_cluster(returns, name) for name in _clusters(returns)])
    lockfile.record_deployed(path, target.pins, target.hosts)
    is_as_recorded = _compare_with_records(hosts, target)
    return DONE if has_model and is_as_recorded else FINDINGS


def _read(host: Host, reader: str, question: object) -> Any:
    """Return the answer of a reader of deploy records.

    Raises:
        LockstepError: the host does not answer.
    """
    answer, fault = read(
        *(host.login, f"deploy_records.{reader}", question),
        sudo=host.with_sudo,
        limit_s=_READ_S,
    )
    if fault:
        raise LockstepError(
            "it cannot be asked",
            where=host.name,
            found=fault,
            remedy="Switch it on, or leave it out of the inventory for now.",
        )
    return answer


def _target(path: Path, now: Pins, effects_by_host: Mapping[str, Mapping[str, Any]]) -> _Target:
    """Return the last deploy that reached all hosts if something has changed since, or the one
    before.

    Raises:
        LockstepError: it is not kept.
    """
    last, previous_lock = lockfile.deployed_path(path), lockfile.previous_path(path)
    source = last
    if last.exists() and lockfile.load(last) == now:
        deployed_hosts = lockfile.deployed_with(last)
        digests = {name: record["generation"] for name, record in deployed_hosts.items()}
        present_digests = {name: effects["from"] for name, effects in effects_by_host.items()}
        if all(digests.get(name, digest) == digest for name, digest in present_digests.items()):
            source = previous_lock
    hosts = lockfile.deployed_with(source)
    if not source.exists() or not hosts:
        raise LockstepError(
            "there is no deploy to return to",
            where=str(path),
            found=f"no {source.name}" if not source.exists() else f"no whole {source.stem}.json",
            remedy="A deploy keeps them when it has reached all hosts; else take older files from "
            "version control and deploy.",
        )
    return _Target(source, lockfile.load(source), hosts)


def _host_returns(
    hosts: Sequence[Host], effects_by_host: Mapping[str, Mapping[str, Any]], target: _Target
) -> Iterator[_HostReturn]:
    """Yield the hosts that return.

    Raises:
        LockstepError: a host's journal leads elsewhere.
    """
    for host in hosts:
        effects, wanted_digest = effects_by_host[host.name], target.digest(host)
        if not wanted_digest:
            click.echo(f"{host.name}: was not in that deploy, and stays as it is")
        elif effects["from"] == wanted_digest:
            click.echo(f"{host.name}: is as it was then")
        elif effects.get("digest") != wanted_digest:
            leads_to = "no readable journal"
            if "digest" in effects:
                leads_to = f"the way to generation {effects['number']} of {effects['date']}"
            raise LockstepError(
                "its journal does not lead to the deploy before; nothing was changed",
                where=host.name,
                found=leads_to,
                remedy=f"Put your files back to what they were then, copy {target.lock.name} over "
                "the lock, and deploy.",
            )
        elif effects["foreign"]:
            raise LockstepError(effects["foreign"], where=host.name)
        else:
            yield _HostReturn(host, effects)


def _print_returns(returns: Sequence[_HostReturn], dry: bool) -> None:
    for host_return in returns:
        name, effects = host_return.host.name, host_return.effects
        interruption = ""
        if effects["interrupted"]:
            end = "it ends, for it was not there then" if effects["ends"] else "it restarts"
            interruption = f"; {effects['interrupted']} is hot: {end}"
        click.echo(
            f"{name}: as generation {effects['number']} of {effects['date']} was, "
            f"{len(effects['files'])} file(s){interruption}"
        )
        for path in effects["files"] if dry else ():
            click.echo(f"  {path}")


def _print_changed_keys(inventory: Path, hosts: Sequence[Host], target: _Target) -> None:
    """Print the keys of the owner's files that differ from that deploy."""
    plans = [host.plan for host in hosts]
    changed_keys = input_changes(
        target.hosts, plans, inventories.origins(inventory), inventory.name
    )
    if not changed_keys:
        return
    files = ", ".join(dict.fromkeys(record.file for record in changed_keys))
    click.echo(f"Your files differ from then. Put {files} back, or the next deploy brings again:")
    for record in changed_keys:
        click.echo(
            f"  {', '.join(record.hosts)}: {record.key}   {record.old} → {record.new}   "
            f"({record.file})"
        )


def _copies(returns: Sequence[_HostReturn]) -> list[Fitting]:
    """Print which copies of Open WebUI's data return; return the hosts with such a copy."""
    images = {host_return.host.name: host_return.effects["webui"] for host_return in returns}
    fitting_copies = fitting([host_return.host for host_return in returns], images)
    for fitting_copy in fitting_copies:
        warning = f"{fitting_copy.host.name}: Open WebUI gets an older or newer image"
        if fitting_copy.fault:
            warning = f"{fitting_copy.host.name}: copies of Open WebUI's data: {fitting_copy.fault}"
        elif fitting_copy.number is None:
            warning += ", and no copy of its data is from that one. Where it refuses the present "
            warning += "data, the present image returns."
        else:
            warning += (
                f". Its data of {fitting_copy.date} (generation {fitting_copy.generation}) fit: "
                f"{fitting_copy.loss}."
            )
        click.echo(warning, err=bool(fitting_copy.fault))
    return [fitting_copy for fitting_copy in fitting_copies if fitting_copy.number is not None]


def _data_words(copies: Sequence[Fitting], data: str | None) -> Sequence[str]:
    """Return the option of a host's program about the copies: all return, or none."""
    if not copies:
        return ()
    if data is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nobody can be asked here: --data return takes the older data, --data keep tries "
                "the older image on the present ones"
            )
        data = "return" if confirm("Return these data with the image?") else "keep"
    return ("--keep-data",) if data == "keep" else ()


def _return_host(host_return: _HostReturn, words: Sequence[str]) -> bool:
    """Return a host by its journal; tell whether it did."""
    host = host_return.host
    argv = ["sudo", "-n", *command("rollout", "back", *words)]
    with console().status(f"{host.name}: returning"):
        answer = ask(host.login, argv)
    for line in (answer.out + answer.err).splitlines():
        click.echo(f"{host.name}: {line}")
    if answer.fault:
        click.echo(f"{host.name}: {answer.fault}", err=True)
    # A cluster's model starts again when all members have returned.
    done_codes = (0, EXIT_NOTHING_HOT) if host_return.effects["cluster"] else (0,)
    return not answer.fault and answer.code in done_codes


def _state_of_unfinished(returns: Sequence[_HostReturn], number: int) -> str:
    """Return what there is to know where the return of host `number` did not end well."""
    names = [host_return.host.name for host_return in returns]
    undo = f"`{command_text('rollback')}` undoes it, and a second one begins anew. "
    parts = (
        f"Returned: {', '.join(names[:number])}. {undo}" if number else "",
        f"Not returned: {', '.join(names[number + 1 :])}. " if names[number + 1 :] else "",
        f"`{command_text('rollback', '--dry')}` shows where each Spark is.",
    )
    return "".join(parts)


def _clusters(returns: Sequence[_HostReturn]) -> list[str]:
    """Return the clusters whose model was hot."""
    clusters = (host_return.effects["cluster"] for host_return in returns)
    return list(dict.fromkeys(filter(None, clusters)))


def _restart_cluster(returns: Sequence[_HostReturn], cluster: str) -> bool:
    """Make the model of a cluster hot again on all its members; tell whether it is."""
    first = next(item for item in returns if item.effects["cluster"] == cluster)
    host, model = first.host, first.effects["interrupted"]
    with console().status(f"{host.name}: switching to {model}"):
        answer = ask(host.login, [switch_path(host.plan.settings), model])
    for line in (answer.out + answer.err).splitlines():
        click.echo(f"{host.name}: {line}")
    return answer.code == 0


def _compare_with_records(hosts: Sequence[Host], target: _Target) -> bool:
    """Print each host's differences from its record of the generation; tell whether none exists."""

    def compare_host(host: Host) -> list[str]:
        try:
            return list(_read(host, "differences_from_generation", target.digest(host)))
        except LockstepError as fault:
            return [str(fault)]

    compared_hosts = [host for host in hosts if target.digest(host)]
    differing = at_once(compare_host, compared_hosts)
    for host, lines in zip(compared_hosts, differing, strict=True):
        for line in lines:
            click.echo(f"{host.name}: not as its record of that generation says: {line}", err=True)
    if not any(differing):
        click.echo("Each host is what its record of that generation says.")
    return not any(differing)
