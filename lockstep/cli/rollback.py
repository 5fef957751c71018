"""`lockstep rollback`: deploys the previous lock again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.deploy import carry_out
from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.lock import print_changes
from lockstep.cli.shared import DONE, FINDINGS, INTERRUPTED, UNUSABLE, confirm
from lockstep.core.errors import LockstepError
from lockstep.deploy.inputs import changed
from lockstep.fleet.hosts import Host, at_once, choose, read
from lockstep.fleet.webui import Fitting, fitting, use
from lockstep.host.intended import Intended
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.logins import logged_in
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes
from lockstep.lock.pins import Pins, missing
from lockstep.lock.wanted import wanted

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

    Its content is still on the hosts (until `lockstep gc`), so nothing is downloaded, and nothing
    is resolved. A lock that was changed and not yet deployed to all hosts returns to the deployed
    one. Otherwise a second rollback undoes the first, also where its deploy failed. As `deploy`, it
    asks before it interrupts a hot model; where nobody agrees, lock and hosts stay as they are.

    The lock alone moves. Where targets, recipes or other data make another generation of it than
    then, this names each key that has changed, and refuses. Afterwards each host is compared with
    its record of that generation.

    Exit codes: 0 done; 1 the deploy failed, nobody agreed, or a host is not what its record says;
    2 the inventory has changed, there is no previous lock, or wrong use; 130 ended by Ctrl-C.
    """
    if diff and not dry:
        raise click.UsageError("--diff shows what differs, and goes with --dry")
    hosts, _ = choose(inventory)
    path = inventories.lock_path(inventory, [host.plan for host in hosts])
    now = lockfile.load(path)
    source, pins, what, undone = _target(path, now)
    before = lockfile.deployed_with(source)
    if obstacle := _obstacle(inventory, hosts, pins, before):
        click.echo(obstacle, err=True)
        return UNUSABLE
    print_changes(changes(now, pins))
    copies = _copies(hosts, pins)
    if dry:
        click.echo(f"Would go back to {what}.")
        return carry_out(inventory, dry=True, diff=diff, what="rollback", lock=source)
    wanted_back = _wanted_back(copies, data)
    begun = False

    def begin() -> None:
        nonlocal begun
        _use(wanted_back)
        begun = True

    # The deploy reads it, and what is then deployed is kept as this file's.
    lockfile.save(path, pins)
    try:
        click.echo(f"{path.name} is {what} again; deploying it.")
        code = carry_out(inventory, yes=yes, what="rollback", begin=begin)
    finally:
        if not begun:
            lockfile.save(path, now)
            click.echo(f"{path.name} is as it was before this rollback.", err=True)
    if code and begun:
        back = f"`{typed('rollback')}` puts the other lock back."
        click.echo(
            f"The deploy {'was ended' if code == INTERRUPTED else 'failed'}; {path.name} stays as "
            f"it is now. `{typed('deploy')}` goes on. {back if undone else ''}".rstrip(),
            err=True,
        )
    if code:
        return code
    return FINDINGS if _apart(hosts, pins, before) else DONE


def _obstacle(inventory: Path, hosts: Sequence[Host], pins: Pins, before: Mapping[str, Any]) -> str:
    """Why the lock alone does not lead back to what was deployed with it; "" where it does."""
    lacking = missing(wanted([(host.plan.settings, host.plan.targets) for host in hosts]), pins)
    then = {name: each["generation"] for name, each in before.items()}
    now: dict[str, str] = {} if lacking else _generations(hosts, pins)
    if not lacking and (not then or then == now):
        return ""
    # Hosts that are the same generation again have changed in keys that make none.
    plans = [host.plan for host in hosts if lacking or now[host.name] != then.get(host.name)]
    others = {host.name for host in hosts} - {plan.name for plan in plans}
    was = {name: each for name, each in before.items() if name not in others}
    found = changed(was, plans, inventories.origins(inventory), inventory.name)
    files = list(dict.fromkeys(each.file for each in found))
    lines = [
        "lockstep: rollback moves the lock alone, and more has changed since that was deployed:"
    ]
    lines += [
        f"  {', '.join(each.hosts)}: {each.key}   {each.old} → {each.new}   ({each.file})"
        for each in found
    ]
    if not before:
        lines += [f"  not in that lock: {item.key}" for item in lacking]
        files = [inventory.name]
    if not files:
        lines.append("  Lockstep itself: the same data make other units now")
        files = ["Lockstep"]
    remedy = f"Remedy: put {', '.join(files)} back to what it was then, with git, and deploy."
    return "\n".join((*lines, f"{remedy} Nothing was changed."))


def _generations(hosts: Sequence[Host], pins: Pins) -> dict[str, str]:
    """Host → digest of the generation that a deploy of these pins makes of it."""
    return {host.name: Intended(logged_in(host.plan), pins).generation["digest"] for host in hosts}


def _apart(hosts: Sequence[Host], pins: Pins, before: Mapping[str, Any]) -> bool:
    """Say what of each host is not as its record of the generation says; whether anything is."""
    then = {name: each["generation"] for name, each in before.items()}
    then = then or _generations(hosts, pins)

    def compared(host: Host) -> list[str]:
        found, fault = read(
            *(host.login, "records.apart", then[host.name]),
            sudo=host.with_sudo,
            limit_s=_COMPARED_S,
        )
        return [f"cannot be compared with its record: {fault}"] if fault else list(found)

    differing = at_once(compared, hosts)
    for host, lines in zip(hosts, differing, strict=True):
        for line in lines:
            click.echo(f"{host.name}: not as its record of that generation says: {line}", err=True)
    if not any(differing):
        click.echo("Each host is what its record of that generation says.")
    return any(differing)


def _copies(hosts: Sequence[Host], pins: Pins) -> list[Fitting]:
    """Say what of Open WebUI's data fits the lock; the hosts that have such a copy."""
    found = fitting(hosts, pins)
    for each in found:
        said = f"{each.host.name}: Open WebUI gets an older or newer image"
        if each.fault:
            said = f"{each.host.name}: copies of Open WebUI's data: {each.fault}"
        elif each.number is None:
            said += ", and no copy of its data is from that one. Where it refuses the present "
            said += "data, the present image returns."
        else:
            said += f". Its data of {each.date} (generation {each.generation}) fit: {each.loss}."
        click.echo(said, err=bool(each.fault))
    return [each for each in found if each.number is not None]


def _wanted_back(copies: Sequence[Fitting], data: str | None) -> Sequence[Fitting]:
    """Those of the copies that are to return: all or none."""
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
    """Have the copies return with the image."""
    for each in copies:
        if fault := use(each):
            raise LockstepError(
                "its copy of Open WebUI's data cannot be used; nothing was changed",
                where=each.host.name,
                found=fault,
            )


def _target(path: Path, now: Pins) -> tuple[Path, Pins, str, bool]:
    """The lock to go back to, its pins, in words, and whether a second rollback undoes it.

    A lock that was never deployed whole is kept nowhere.
    """
    last, before = lockfile.deployed_path(path), lockfile.previous_path(path)
    if last.exists():
        deployed = lockfile.load(last)
        if deployed != now:
            return last, deployed, "the lock that the last whole deploy used", False
        if before.exists():
            return before, lockfile.load(before), "the lock that was deployed before", True
    raise LockstepError(
        "there is no lock to go back to",
        where=str(path),
        found=f"no {before.name}" if last.exists() else f"no {last.name}",
        remedy="The deploy keeps them when it has reached all hosts; else take an older lock from "
        "version control and deploy.",
    )
