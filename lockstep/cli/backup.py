"""`lockstep backup`: backups of the Sparks of an inventory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.each_host import answered, exit_code, of_each
from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, UNUSABLE, ask_first, print_json
from lockstep.core.errors import InventoryError, LockstepError
from lockstep.files.managed_file import command
from lockstep.fleet.hosts import Answer, Host, ask, at_once, choose
from lockstep.onhost.backup.backup import BY_HAND, ONE_DISK, TAG

#: Seconds for a backup or a restore: a sftp server may be far away.
_LIMIT_S = 4 * 3600.0
_HOSTS = click.argument("host", nargs=-1)


@click.group()
def backup() -> None:
    """Backups of what each Spark alone has (`lockstep help backup`)."""


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
    found = of_each(_listed, _with_backup(inventory, host))
    if as_json:
        print_json({each.name: data or {"fault": fault} for each, data, fault in found})
    else:
        for each, data in answered(found):
            _print(each.name, data)
    places = [place for _, data, _ in found if data for place in data["places"].values()]
    return exit_code(found, any(place.get("fault") for place in places))


@backup.command()
@INVENTORY
@click.argument("host")
@click.argument("snapshot", default="latest")
@click.option("--from", "place", default="", help="Another place of its backups, as `list` has it.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
def restore(inventory: Path, host: str, snapshot: str, place: str, yes: bool) -> int:
    """Bring back what a backup of HOST holds.

    Chats, keys and accepted results are then as they were in SNAPSHOT.

    SNAPSHOT is an id of `lockstep backup list`; without it the newest that is not of before an
    update. The present data of Open WebUI are kept first, and return where those of the backup do
    not serve.

    Exit codes: 0 done; 1 it failed, with the reason; 2 no such backup, nobody agreed, or wrong use.
    """
    (chosen,) = _with_backup(inventory, (host,))
    data, fault = _listed(chosen)
    if fault:
        raise LockstepError("the backups cannot be listed", where=host, found=fault)
    one = _chosen(chosen, data, snapshot, place)
    lost = "what was written since is not in it"
    if one["chats_since"] is not None:
        lost = f"{one['chats_since']} chat(s) that were begun or continued since are not in it"
    click.echo(f"{host}: {one['id']} of {one['date']} (generation {one['generation']}): {lost}.")
    click.echo("Keys of people and accepted results return to that time too.")
    ask_first("Restore it?", yes=yes, otherwise="-y restores without a question")
    words = ["restore", one["id"], *(("--from", place) if place else ())]
    return _every([chosen], *words)


def _chosen(host: Host, data: Any, snapshot: str, place: str) -> Any:
    places = data["places"]
    where = place or next(iter(places))
    if where not in places or places[where].get("fault"):
        raise LockstepError(
            "no backup can be read there",
            where=host.name,
            found=places.get(where, {}).get("fault", where),
            remedy=f"Name one of these with --from: {', '.join(places)}.",
        )
    for each in places[where]["snapshots"]:
        if each["why"] in (TAG, BY_HAND) if snapshot == "latest" else each["id"] == snapshot:
            return each
    remedy = "`lockstep backup list` shows them."
    raise LockstepError("no such backup", where=host.name, found=snapshot, remedy=remedy)


def _with_backup(inventory: Path, names: Sequence[str]) -> list[Host]:
    _, chosen = choose(inventory, names)
    found = [each for each in chosen if each.plan.settings.backup.enabled]
    if not found or (names and len(found) < len(chosen)):
        lacking = [each.name for each in chosen if each not in found]
        raise InventoryError(
            "no backup is made",
            where=str(inventory),
            found=", ".join(lacking),
            remedy='Set `backup` to {"enabled": True} (`lockstep help backup`), and deploy.',
        )
    return found


def _asked(host: Host, *words: str) -> Answer:
    return ask(host.login, ["sudo", "-n", *command("backup", *words)], limit_s=_LIMIT_S)


def _listed(host: Host) -> tuple[Any, str]:
    return _asked(host, "list").json()


def _every(hosts: Sequence[Host], *words: str) -> int:
    """Have each host do it, all at once, and say of each how it ended when it has."""

    def done(host: Host) -> Answer:
        answer = _asked(host, *words)
        said = answer.fault or (answer.said if answer.code else answer.out.rstrip())
        for line in said.splitlines():
            click.echo(f"{host.name}: {line}", err=bool(answer.fault or answer.code))
        return answer

    click.echo(f"{', '.join(each.name for each in hosts)}: {words[0]} ...", err=True)
    found = at_once(done, hosts)
    silent = any(each.fault for each in found)
    failed = any(each.code for each in found)
    return UNUSABLE if silent else FINDINGS if failed else DONE


def _print(name: str, data: Any) -> None:
    places = data["places"]
    own, *others = places
    if places[own].get("none_yet"):
        old = (
            f"Older ones may be in {', '.join(others)}" if others else "It keeps them nowhere else"
        )
        click.echo(f"{name}: no backup yet (a new host, or one whose disk was lost). {old}.")
    else:
        click.echo(f"{name}: password in {data['password']}")
    if all(found.get("on_this_disk") for found in places.values()):
        click.echo(f"{name}: {ONE_DISK}")
    for place, found in places.items():
        none = "none yet" if found.get("none_yet") else None
        click.echo(f"  {place}: {found.get('fault') or none or len(found['snapshots'])}")
        for one in found["snapshots"]:
            image = one["image"].partition("@")[0]
            what = f"{one['why']}, generation {one['generation']}, {image}"
            click.echo(f"    {one['id']}  {one['date']}  {what}")
