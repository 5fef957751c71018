"""`lockstep key`: who may use the gateways of an inventory."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.table import Table

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.shared import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.core.errors import LockstepError
from lockstep.core.terminal import console, indented, is_narrow
from lockstep.fleet.hosts import Host, choose
from lockstep.fleet.keys import Held, held, newest, next_stamp
from lockstep.onhost.core import schema
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.usage import Total

IN_FORCE = "in force"


def _name(_: click.Context, __: click.Parameter, value: str) -> str:
    found: str = schema.convert(keys.Name, value, where="", key="NAME", error=LockstepError)
    return found


_NAME = click.argument("name", callback=_name)


@click.group()
def key() -> None:
    """Keys of persons for the gateways (`lockstep help keys`)."""


@key.command()
@INVENTORY
@_NAME
@click.option(
    "--role",
    type=click.Choice(keys.ROLES),
    default="use",
    show_default=True,
    help="`use` asks models; `operate` may switch them too.",
)
@click.option(
    "--until", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="Last day, in UTC."
)
def add(inventory: Path, name: str, role: keys.Role, until: datetime.datetime | None) -> int:
    """Make a key for the person NAME, for every Spark at once.

    The key is printed once, alone on standard output. The Sparks get its hash.

    Exit codes: 0 in force on every Spark; 2 a Spark lacks it, wrong use, or the person has a key.
    """
    now = keys.utc()
    day = until.date().isoformat() if until else None
    if day and day < now.date().isoformat():
        raise click.UsageError("--until: the day is over")
    hosts, _ = choose(inventory)
    before = held(hosts)
    last = newest(before).get(name)
    if last and last.valid(now):
        raise LockstepError(
            f"{name} has a key since {last.since}",
            remedy=f"`{typed('key', 'revoke', name)}` ends it; "
            f"`{typed('key', 'list', '--fix')}` brings it to each Spark.",
        )
    secret = keys.new_key()
    entry = keys.Entry(
        name, next_stamp(last, now), keys.digest(secret.encode()), role=role, until=day
    )
    after = _given(hosts, before, [entry])
    there = [each.host for each in after if each.entries.get(name) == entry]
    if there:
        click.echo(f"{name}, role {role}, on {', '.join(there)}. Shown only now:", err=True)
        click.echo(secret)
    if not there:
        return _told_others(after, there, f"No key was made. Again: `{typed('key', 'add', name)}`")
    remedy = f"Then: `{typed('key', 'list', '--fix')}`"
    return _told_others(after, there, f"{name}'s key is not in force there. {remedy}")


@key.command()
@INVENTORY
@_NAME
def revoke(inventory: Path, name: str) -> int:
    """End the key of the person NAME on every Spark at once.

    Requests under way go on to their end.

    Exit codes: 0 revoked on every Spark; 2 a Spark was not reached, wrong use, or there is no key.
    """
    hosts, _ = choose(inventory)
    before = held(hosts)
    last = newest(before).get(name)
    if last is None and not any(each.fault for each in before):
        known = [person for person, entry in newest(before).items() if entry.sha256]
        allowed = ", ".join(known) or "none has one"
        raise LockstepError(f"no Spark has a key of {name}", allowed=allowed)
    entry = last or keys.Entry(name, next_stamp(None, keys.utc()))
    if entry.sha256 is not None:
        entry = replace(entry, since=next_stamp(last, keys.utc()), sha256=None)
    after = _given(hosts, before, [entry])
    there = [each.host for each in after if each.entries.get(name) == entry]
    if there:
        click.echo(f"{name}: revoked on {', '.join(there)}")
    remedy = f"Again: `{typed('key', 'revoke', name)}`"
    return _told_others(after, there, f"{name}'s key may be in force there. {remedy}")


def _given(
    hosts: Sequence[Host], before: Sequence[Held], entries: Iterable[keys.Entry]
) -> list[Held]:
    """What each Spark holds when those that answered before have taken these entries."""
    answering = [host for host, was in zip(hosts, before, strict=True) if not was.fault]
    given = iter(held(answering, entries))
    return [was if was.fault else next(given) for was in before]


def _told_others(found: Sequence[Held], there: Sequence[str], what: str) -> int:
    """Say which Sparks lack a change, and what follows from it; the exit code."""
    others = [each for each in found if each.host not in there]
    for each in others:
        click.echo(f"{each.host}: {each.fault or 'another change came first'}\n  {what}", err=True)
    return UNUSABLE if others else DONE


@key.command("list")
@INVENTORY
@AS_JSON
@click.option("--fix", is_flag=True, help="Bring the last change of each person to every Spark.")
def list_(inventory: Path, as_json: bool, fix: bool) -> int:
    """Show each person with a key, and what they asked for.

    What differs among the Sparks is named.

    Requests and tokens (prompts/answers) are those of all Sparks, up to half a minute ago.

    Exit codes: 0 every Spark has the same keys; 1 they differ; 2 one could not be read.
    """
    hosts, _ = choose(inventory)
    found = held(hosts)
    last = newest(found)
    if fix and any(_lacks(each, last) for each in found):
        found = _given(hosts, found, last.values())
    lacking = {each.host: _lacks(each, last) for each in found if not each.fault}
    if as_json:
        print_json(_data(found, last, lacking))
    else:
        _print(found, last, lacking)
    differs = FINDINGS if any(lacking.values()) else DONE
    return UNUSABLE if any(each.fault for each in found) else differs


def _lacks(one: Held, last: dict[str, keys.Entry]) -> dict[str, str]:
    """Person → what is wrong with the Spark's entry; {} where it has every last change."""
    wrong = {}
    for person, entry in last.items():
        if (here := one.entries.get(person)) != entry:
            wrong[person] = f"{_state(here)} by an older change" if here else "unknown"
    return wrong if not one.fault else {}


def _state(entry: keys.Entry) -> str:
    if entry.sha256 is None:
        return "revoked"
    return IN_FORCE if entry.valid(keys.utc()) else "expired"


def _total(found: Sequence[Held], person: str) -> Total:
    every = [each.usage[person] for each in found if person in each.usage]
    return Total(
        sum(each.requests for each in every),
        sum(each.prompt_tokens for each in every),
        sum(each.completion_tokens for each in every),
        sum(each.refused for each in every),
        max((each.last for each in every if each.last), default=None),
    )


def _data(
    found: Sequence[Held], last: dict[str, keys.Entry], lacking: dict[str, dict[str, str]]
) -> dict[str, object]:
    return {
        "persons": [
            {
                "person": person,
                "role": entry.role,
                "since": entry.since,
                "until": entry.until,
                "state": _state(entry),
                "usage": vars(_total(found, person)),
            }
            for person, entry in last.items()
        ],
        "without_key": vars(_total(found, keys.LOCAL)),
        "differs": lacking,
        "unknown": {each.host: each.fault for each in found if each.fault},
    }


def _print(
    found: Sequence[Held],
    last: dict[str, keys.Entry],
    lacking: dict[str, dict[str, str]],
) -> None:
    rows = []
    for person, entry in last.items():
        state = _state(entry)
        if entry.until and entry.sha256:
            state = f"{'until' if state == IN_FORCE else state} {entry.until}"
        rows.append((person, entry.role, state, *_figures(_total(found, person))))
    without = _total(found, keys.LOCAL)
    if without.requests or without.refused:
        rows.append(("(no key)", "use", "local", *_figures(without)))
    if rows:
        _print_persons(rows)
    elif any(not each.fault for each in found):
        click.echo("nobody has a key")
    for host, persons in lacking.items():
        for person, state in persons.items():
            click.echo(f"{host}: {person} is {state}; by the last one: {_state(last[person])}")
    if any(lacking.values()):
        click.echo(f"→ {typed('key', 'list', '--fix')}")
    for each in found:
        if each.fault:
            click.echo(f"{each.host}: {each.fault}", err=True)


def _print_persons(rows: Sequence[tuple[str, ...]]) -> None:
    """A line each; on a phone the figures have lines of their own."""
    if is_narrow():
        for person, role, state, requests, refused, tokens, last in rows:
            click.echo(f"{person}  {role}, {state}")
            when = f", last {last}" if last else ""
            indented(f"{requests} requests, {refused} refused, {tokens} tokens{when}")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("person", "role", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("requests", "refused", "tokens", "last"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _figures(total: Total) -> tuple[str, ...]:
    tokens = f"{_short(total.prompt_tokens)}/{_short(total.completion_tokens)}"
    return (str(total.requests), str(total.refused), tokens, (total.last or "")[:10])


def _short(count: int) -> str:
    """A count in at most six characters: 9999, 12.3k, 45.6M."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if count >= 10 ** (power + 1):
            return f"{count / 10**power:.1f}{unit}"
    return str(count)
