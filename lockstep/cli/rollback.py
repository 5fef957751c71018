"""`lockstep rollback`: a deploy of the previous lock."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import DONE, FINDINGS, INTERRUPTED, UNUSABLE, confirm
from lockstep.cli.deploy import carry_out
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.cli.lock import print_changes
from lockstep.core.errors import LockstepError
from lockstep.deploy.inputs import input_changes
from lockstep.fleet.hosts import Host, at_once, choose, read
from lockstep.fleet.webui import Fitting, fitting, use
from lockstep.host.desired_state import DesiredState
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile
from lockstep.lock.lock_items import wanted_items
from lockstep.lock.lockdiff import changes
from lockstep.lock.pins import Pins, missing

_COMPARED_S = 60.0


@click.command()
@INVENTORY
@click.option(
    "--dry",
    is_flag=True,
    help="Show what would change and be interrupted; write and deploy nothing.",
)
@click.option("--diff", is_flag=True, help="With --dry: what differs in each file.")
@click.option("--yes", is_flag=True, help="Ask nothing before a hot model is interrupted.")
@click.option(
    "--data",
    type=click.Choice(["return", "keep"]),
    help="What Open WebUI's older image begins with, without a question.",
)
def rollback(inventory: Path, dry: bool, diff: bool, yes: bool, data: str | None) -> int:
    """Restore the lock that was deployed before, and deploy it.

    Its content is still on the hosts (until `lockstep gc`), so nothing is downloaded or resolved. A
    lock that was changed and not yet deployed to all hosts returns to the deployed one. Otherwise a
    second rollback undoes the first, even if its deploy failed. Like `deploy`, the command asks
    before it interrupts a hot model; if nobody agrees, lock and hosts stay as they are.

    Only the lock moves. If models, recipes or other data would now make another generation of it,
    the command names each changed key and refuses. Afterwards it compares each host with the host's
    record of that generation.

    Exit codes: 0 done; 1 the deploy failed, nobody agreed, or a host is not what its record says; 2
    the inventory has changed, there is no previous lock, or wrong use; 130 ended by Ctrl-C.
    """
    if diff and not dry:
        raise click.UsageError("--diff shows what differs, and goes with --dry")
    hosts, _ = choose(inventory)
    path = inventories.lock_path(inventory, [host.plan for host in hosts])
    now = lockfile.load(path)
    source, pins, description, is_undone = _target(path, now)
    earlier_records = lockfile.deployed_with(source)
    if obstacle := _obstacle(inventory, hosts, pins, earlier_records):
        click.echo(obstacle, err=True)
        return UNUSABLE
    print_changes(changes(now, pins))
    copies = _copies(hosts, pins)
    if dry:
        click.echo(f"Would go back to {description}.")
        return carry_out(inventory, dry=True, diff=diff, command="rollback", lock=source)
    wanted_back = _wanted_back(copies, data)
    has_begun = False

    def begin() -> None:
        nonlocal has_begun
        _use(wanted_back)
        has_begun = True

    # The deploy reads this file, and then keeps it as the deployed lock.
    lockfile.save(path, pins)
    try:
        click.echo(f"{path.name} is {description} again; deploying it.")
        code = carry_out(inventory, yes=yes, command="rollback", begin=begin)
    finally:
        if not has_begun:
            lockfile.save(path, now)
            click.echo(f"{path.name} is as it was before this rollback.", err=True)
    if code and has_begun:
        back = f"`{command_text('rollback')}` puts the other lock back."
        click.echo(
            f"The deploy {'was ended' if code == INTERRUPTED else 'failed'}; {path.name} stays as "
            f"it is now. `{command_text('deploy')}` goes on. {back if is_undone else ''}".rstrip(),
            err=True,
        )
    if code:
        return code
    return FINDINGS if _apart(hosts, pins, earlier_records) else DONE


def _obstacle(
    inventory: Path, hosts: Sequence[Host], pins: Pins, earlier_records: Mapping[str, Any]
) -> str:
    """Return why the lock alone does not restore what was deployed with it; "" if it does."""
    lacking = missing(
        wanted_items([(host.plan.settings, host.plan.models) for host in hosts]), pins
    )
    then = {name: record["generation"] for name, record in earlier_records.items()}
    now: dict[str, str] = {} if lacking else _generations(hosts, pins)
    if not lacking and (not then or then == now):
        return ""
    # Hosts with an equal generation have changed only in keys that do not affect it.
    plans = [host.plan for host in hosts if lacking or now[host.name] != then.get(host.name)]
    other_hosts = {host.name for host in hosts} - {plan.name for plan in plans}
    was = {name: record for name, record in earlier_records.items() if name not in other_hosts}
    changed_keys = input_changes(was, plans, inventories.origins(inventory), inventory.name)
    files = list(dict.fromkeys(record.file for record in changed_keys))
    lines = [
        "lockstep: rollback moves the lock alone, and more has changed since that was deployed:"
    ]
    lines += [
        f"  {', '.join(record.hosts)}: {record.key}   {record.old} → {record.new}   ({record.file})"
        for record in changed_keys
    ]
    if not earlier_records:
        lines += [f"  not in that lock: {item.key}" for item in lacking]
        files = [inventory.name]
    if not files:
        lines.append("  Lockstep itself: the same data make other units now")
        files = ["Lockstep"]
    remedy = f"Remedy: put {', '.join(files)} back to what it was then, with git, and deploy."
    return "\n".join((*lines, f"{remedy} Nothing was changed."))


def _generations(hosts: Sequence[Host], pins: Pins) -> dict[str, str]:
    """Return by host the digest of the generation that a deploy of these pins would make."""
    return {
        host.name: DesiredState(logged_in(host.plan), pins).generation_document["digest"]
        for host in hosts
    }


def _apart(hosts: Sequence[Host], pins: Pins, earlier_records: Mapping[str, Any]) -> bool:
    """Print each host's differences from its record of the generation; tell whether any exist."""
    then = {name: record["generation"] for name, record in earlier_records.items()}
    then = then or _generations(hosts, pins)

    def compare_host(host: Host) -> list[str]:
        reply, fault = read(
            *(host.login, "deploy_records.differences_from_generation", then[host.name]),
            sudo=host.with_sudo,
            limit_s=_COMPARED_S,
        )
        return [f"cannot be compared with its record: {fault}"] if fault else list(reply)

    differing = at_once(compare_host, hosts)
    for host, lines in zip(hosts, differing, strict=True):
        for line in lines:
            click.echo(f"{host.name}: not as its record of that generation says: {line}", err=True)
    if not any(differing):
        click.echo("Each host is what its record of that generation says.")
    return any(differing)


def _copies(hosts: Sequence[Host], pins: Pins) -> list[Fitting]:
    """Print which copies of Open WebUI's data fit the lock; return the hosts with such a copy."""
    fitting_copies = fitting(hosts, pins)
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


def _wanted_back(copies: Sequence[Fitting], data: str | None) -> Sequence[Fitting]:
    """Return the copies that should return with the image: all or none."""
    if not copies or data == "keep":
        return ()
    if data is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nobody can be asked here: --data return takes the older data, --data keep tries "
                "the older image on the present ones"
            )
        if not confirm("Return these data with the image?"):
            return ()
    return copies


def _use(copies: Sequence[Fitting]) -> None:
    """Mark the copies to return with the image.

    Raises:
        LockstepError: a copy cannot be used.
    """
    for fitting_copy in copies:
        if fault := use(fitting_copy):
            raise LockstepError(
                "its copy of Open WebUI's data cannot be used; nothing was changed",
                where=fitting_copy.host.name,
                found=fault,
            )


def _target(path: Path, now: Pins) -> tuple[Path, Pins, str, bool]:
    """Return the lock to go back to, its pins, its name, and whether a second rollback undoes this.

    A lock that was never deployed to all hosts is not kept.
    """
    last, previous_lock = lockfile.deployed_path(path), lockfile.previous_path(path)
    if last.exists():
        deployed_pins = lockfile.load(last)
        if deployed_pins != now:
            return last, deployed_pins, "the lock that the last whole deploy used", False
        if previous_lock.exists():
            return (
                previous_lock,
                lockfile.load(previous_lock),
                "the lock that was deployed before",
                True,
            )
    raise LockstepError(
        "there is no lock to go back to",
        where=str(path),
        found=f"no {previous_lock.name}" if last.exists() else f"no {last.name}",
        remedy="The deploy keeps them when it has reached all hosts; else take an older lock from "
        "version control and deploy.",
    )
