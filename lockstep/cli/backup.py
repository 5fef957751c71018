"""`lockstep backup`: backups of the Sparks of an inventory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, ask_first, print_json
from lockstep.cli.each_host import answering_hosts, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import InventoryError, LockstepError
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Host, HostAnswer, ask, at_once, choose
from lockstep.onhost.backup.backup import BY_HAND, ONE_DISK, TAG

#: Seconds for a backup or a restore: an sftp server may be far away.
_LIMIT_S = 4 * 3600.0
_HOSTS = click.argument("host", nargs=-1)


@click.group()
def backup() -> None:
    """Back up and restore each Spark (`lockstep help backup`)."""


@backup.command()
@INVENTORY
@_HOSTS
def now(inventory: Path, host: tuple[str, ...]) -> int:
    """Back up each HOST of the inventory now; without HOST all of them.

    Exit codes: 0 done; 1 one failed, with the reason; 2 a Spark did not answer, or wrong use.
    """
    return _every(_with_backup(inventory, host), "now")


@backup.command()
@INVENTORY
@_HOSTS
def check(inventory: Path, host: tuple[str, ...]) -> int:
    """Have restic check every backup of each HOST of the inventory.

    Exit codes: 0 all are whole; 1 one is not, or cannot be read; 2 a Spark did not answer, or
    wrong use.
    """
    return _every(_with_backup(inventory, host), "check")


@backup.command(name="list")
@INVENTORY
@_HOSTS
@AS_JSON
def list_(inventory: Path, host: tuple[str, ...], as_json: bool) -> int:
    """Show the backups of each HOST, place by place.

    The newest comes first.

    Exit codes: 0 done; 1 a place cannot be read; 2 a Spark did not answer, or wrong use.
    """
    answers = of_each(_list_backups, _with_backup(inventory, host))
    if as_json:
        print_json({host_name.name: data or {"fault": fault} for host_name, data, fault in answers})
    else:
        for host_name, data in answering_hosts(answers):
            _print(host_name.name, data)
    places = [place for _, data, _ in answers if data for place in data["places"].values()]
    return exit_code(answers, any(place.get("fault") for place in places))


@backup.command()
@INVENTORY
@click.argument("host")
@click.argument("snapshot", default="latest")
@click.option("--from", "place", default="", help="Another place of its backups, as `list` has it.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
def restore(inventory: Path, host: str, snapshot: str, place: str, yes: bool) -> int:
    """Bring back the content of a backup of HOST.

    Chats, keys and accepted results are then as they were in SNAPSHOT.

    SNAPSHOT is an id of `lockstep backup list`; without it the newest one, except for backups made
    before an update. The present data of Open WebUI are kept first, and return if Open WebUI does
    not serve those of the backup.

    Exit codes: 0 done; 1 it failed, with the reason; 2 no such backup, nobody agreed, or wrong use.
    """
    (target_host,) = _with_backup(inventory, (host,))
    data, fault = _list_backups(target_host)
    if fault:
        raise LockstepError("the backups cannot be listed", where=host, found=fault)
    backup = _choose_backup(target_host, data, snapshot, place)
    loss_warning = "what was written since is not in it"
    if backup["chats_since"] is not None:
        loss_warning = (
            f"{backup['chats_since']} chat(s) that were begun or continued since are not in it"
        )
    click.echo(
        f"{host}: {backup['id']} of {backup['date']} (generation {backup['generation']}): "
        f"{loss_warning}."
    )
    click.echo("Keys of people and accepted results return to that time too.")
    ask_first("Restore it?", yes=yes, otherwise="-y restores without a question")
    words = ["restore", backup["id"], *(("--from", place) if place else ())]
    return _every([target_host], *words)


def _choose_backup(host: Host, data: Any, snapshot: str, place: str) -> Any:
    places = data["places"]
    where = place or next(iter(places))
    if where not in places or places[where].get("fault"):
        raise LockstepError(
            "no backup can be read there",
            where=host.name,
            found=places.get(where, {}).get("fault", where),
            remedy=f"Name one of these with --from: {', '.join(places)}.",
        )
    for backup in places[where]["snapshots"]:
        if backup["why"] in (TAG, BY_HAND) if snapshot == "latest" else backup["id"] == snapshot:
            return backup
    remedy = "`lockstep backup list` shows them."
    raise LockstepError("no such backup", where=host.name, found=snapshot, remedy=remedy)


def _with_backup(inventory: Path, names: Sequence[str]) -> list[Host]:
    _, selected_hosts = choose(inventory, names)
    backup_hosts = [
        candidate for candidate in selected_hosts if candidate.plan.settings.backup.enabled
    ]
    if not backup_hosts or (names and len(backup_hosts) < len(selected_hosts)):
        lacking = [candidate.name for candidate in selected_hosts if candidate not in backup_hosts]
        raise InventoryError(
            "no backup is made",
            where=str(inventory),
            found=", ".join(lacking),
            remedy='Set `backup` to {"enabled": True} (`lockstep help backup`), and deploy.',
        )
    return backup_hosts


def _ask(host: Host, *words: str) -> HostAnswer:
    return ask(host.login, ["sudo", "-n", *command("backup", *words)], limit_s=_LIMIT_S)


def _list_backups(host: Host) -> tuple[Any, str]:
    return _ask(host, "list").json()


def _every(hosts: Sequence[Host], *words: str) -> int:
    """Run a word on all hosts at once; print each host's end as it comes, return the exit code."""

    def run_on(host: Host) -> HostAnswer:
        answer = _ask(host, *words)
        text = answer.fault or (answer.error_text if answer.code else answer.out.rstrip())
        for line in text.splitlines():
            click.echo(f"{host.name}: {line}", err=bool(answer.fault or answer.code))
        return answer

    click.echo(f"{', '.join(target_host.name for target_host in hosts)}: {words[0]} ...", err=True)
    answers = at_once(run_on, hosts)
    silent = any(target_host.fault for target_host in answers)
    has_failed = any(target_host.code for target_host in answers)
    return UNUSABLE if silent else FINDINGS if has_failed else DONE


def _print(name: str, data: Any) -> None:
    places = data["places"]
    own, *other_places = places
    if places[own].get("none_yet"):
        old = (
            f"Older ones may be in {', '.join(other_places)}"
            if other_places
            else "It keeps them nowhere else"
        )
        click.echo(f"{name}: no backup yet (a new host, or one whose disk was lost). {old}.")
    else:
        click.echo(f"{name}: password in {data['password']}")
    if all(contents.get("on_this_disk") for contents in places.values()):
        click.echo(f"{name}: {ONE_DISK}")
    for place, contents in places.items():
        none = "none yet" if contents.get("none_yet") else None
        click.echo(f"  {place}: {contents.get('fault') or none or len(contents['snapshots'])}")
        for entry in contents["snapshots"]:
            image = entry["image"].partition("@")[0]
            description = f"{entry['why']}, generation {entry['generation']}, {image}"
            click.echo(f"    {entry['id']}  {entry['date']}  {description}")
