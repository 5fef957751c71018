"""`lockstep key`: the keys of persons who may use the gateways of an inventory."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.table import Table

from lockstep.cli.common import AS_JSON, DONE, FINDINGS, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.core.errors import LockstepError
from lockstep.core.terminal import console, is_narrow, print_indented
from lockstep.fleet.hosts import Host, choose
from lockstep.fleet.keys import HeldKeys, held_keys, newest, next_stamp
from lockstep.onhost.core import schema
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.usage_totals import Total

IN_FORCE = "in force"


def _name(_: click.Context, __: click.Parameter, value: str) -> str:
    name: str = schema.convert(keys.Name, value, where="", key="NAME", error=LockstepError)
    return name


_NAME = click.argument("name", callback=_name)


@click.group()
def key() -> None:
    """Make, show and revoke persons' keys (`lockstep help keys`)."""


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
    now = keys.utc_now()
    day = until.date().isoformat() if until else None
    if day and day < now.date().isoformat():
        raise click.UsageError("--until: the day is over")
    hosts, _ = choose(inventory)
    earlier_states = held_keys(hosts)
    last = newest(earlier_states).get(name)
    if last and last.is_valid(now):
        raise LockstepError(
            f"{name} has a key since {last.since}",
            remedy=f"`{command_text('key', 'revoke', name)}` ends it; "
            f"`{command_text('key', 'list', '--fix')}` brings it to each Spark.",
        )
    secret = keys.new_key()
    entry = keys.Entry(
        name, next_stamp(last, now), keys.key_digest(secret.encode()), role=role, until=day
    )
    later_states = _give_entries(hosts, earlier_states, [entry])
    hosts_with_it = [
        key_state.host for key_state in later_states if key_state.entries.get(name) == entry
    ]
    if hosts_with_it:
        click.echo(f"{name}, role {role}, on {', '.join(hosts_with_it)}. Shown only now:", err=True)
        click.echo(secret)
    if not hosts_with_it:
        return _told_others(
            later_states,
            hosts_with_it,
            f"No key was made. Again: `{command_text('key', 'add', name)}`",
        )
    remedy = f"Then: `{command_text('key', 'list', '--fix')}`"
    return _told_others(
        later_states, hosts_with_it, f"{name}'s key is not in force there. {remedy}"
    )


@key.command()
@INVENTORY
@_NAME
def revoke(inventory: Path, name: str) -> int:
    """End the key of the person NAME on every Spark at once.

    Requests under way go on to their end.

    Exit codes: 0 revoked on every Spark; 2 a Spark was not reached, wrong use, or there is no key.
    """
    hosts, _ = choose(inventory)
    earlier_states = held_keys(hosts)
    last = newest(earlier_states).get(name)
    if last is None and not any(key_state.fault for key_state in earlier_states):
        persons = [person for person, entry in newest(earlier_states).items() if entry.sha256]
        person_names = ", ".join(persons) or "none has one"
        raise LockstepError(f"no Spark has a key of {name}", allowed=person_names)
    entry = last or keys.Entry(name, next_stamp(None, keys.utc_now()))
    if entry.sha256 is not None:
        entry = replace(entry, since=next_stamp(last, keys.utc_now()), sha256=None)
    later_states = _give_entries(hosts, earlier_states, [entry])
    hosts_with_it = [
        key_state.host for key_state in later_states if key_state.entries.get(name) == entry
    ]
    if hosts_with_it:
        click.echo(f"{name}: revoked on {', '.join(hosts_with_it)}")
    remedy = f"Again: `{command_text('key', 'revoke', name)}`"
    return _told_others(
        later_states, hosts_with_it, f"{name}'s key may be in force there. {remedy}"
    )


def _give_entries(
    hosts: Sequence[Host], earlier_states: Sequence[HeldKeys], entries: Iterable[keys.Entry]
) -> list[HeldKeys]:
    """Give entries to the Sparks that answered; return the keys that each Spark then holds."""
    answering = [host for host, was in zip(hosts, earlier_states, strict=True) if not was.fault]
    new_states = iter(held_keys(answering, entries))
    return [was if was.fault else next(new_states) for was in earlier_states]


def _told_others(key_states: Sequence[HeldKeys], hosts_with_it: Sequence[str], change: str) -> int:
    """Print which Sparks lack a change, and the consequence; return the exit code."""
    lacking_states = [key_state for key_state in key_states if key_state.host not in hosts_with_it]
    for key_state in lacking_states:
        click.echo(
            f"{key_state.host}: {key_state.fault or 'another change came first'}\n  {change}",
            err=True,
        )
    return UNUSABLE if lacking_states else DONE


@key.command("list")
@INVENTORY
@AS_JSON
@click.option("--fix", is_flag=True, help="Bring the last change of each person to every Spark.")
def list_(inventory: Path, as_json: bool, fix: bool) -> int:
    """Show each person with a key, and their usage.

    Differences among the Sparks are named.

    Requests and tokens (prompts/answers) are those of all Sparks, up to half a minute ago.

    Exit codes: 0 every Spark has the same keys; 1 they differ; 2 one could not be read.
    """
    hosts, _ = choose(inventory)
    key_states = held_keys(hosts)
    last = newest(key_states)
    if fix and any(_lacks(key_state, last) for key_state in key_states):
        key_states = _give_entries(hosts, key_states, last.values())
    lacking = {
        key_state.host: _lacks(key_state, last) for key_state in key_states if not key_state.fault
    }
    if as_json:
        print_json(_data(key_states, last, lacking))
    else:
        _print(key_states, last, lacking)
    differs = FINDINGS if any(lacking.values()) else DONE
    return UNUSABLE if any(key_state.fault for key_state in key_states) else differs


def _lacks(key_state: HeldKeys, last: dict[str, keys.Entry]) -> dict[str, str]:
    """Return the faults of a Spark's entries by person; {} if it has every last change."""
    wrong = {}
    for person, entry in last.items():
        if (present_entry := key_state.entries.get(person)) != entry:
            wrong[person] = (
                f"{_state(present_entry)} by an older change" if present_entry else "unknown"
            )
    return wrong if not key_state.fault else {}


def _state(entry: keys.Entry) -> str:
    if entry.sha256 is None:
        return "revoked"
    return IN_FORCE if entry.is_valid(keys.utc_now()) else "expired"


def _total(key_states: Sequence[HeldKeys], person: str) -> Total:
    every = [key_state.usage[person] for key_state in key_states if person in key_state.usage]
    return Total(
        sum(key_state.requests for key_state in every),
        sum(key_state.prompt_tokens for key_state in every),
        sum(key_state.completion_tokens for key_state in every),
        sum(key_state.refusals for key_state in every),
        max((key_state.last for key_state in every if key_state.last), default=None),
    )


def _data(
    key_states: Sequence[HeldKeys], last: dict[str, keys.Entry], lacking: dict[str, dict[str, str]]
) -> dict[str, object]:
    return {
        "persons": [
            {
                "person": person,
                "role": entry.role,
                "since": entry.since,
                "until": entry.until,
                "state": _state(entry),
                "usage": vars(_total(key_states, person)),
            }
            for person, entry in last.items()
        ],
        "without_key": vars(_total(key_states, keys.LOCAL)),
        "differs": lacking,
        "unknown": {key_state.host: key_state.fault for key_state in key_states if key_state.fault},
    }


def _print(
    key_states: Sequence[HeldKeys],
    last: dict[str, keys.Entry],
    lacking: dict[str, dict[str, str]],
) -> None:
    rows = []
    for person, entry in last.items():
        state = _state(entry)
        if entry.until and entry.sha256:
            state = f"{'until' if state == IN_FORCE else state} {entry.until}"
        rows.append((person, entry.role, state, *_figures(_total(key_states, person))))
    without = _total(key_states, keys.LOCAL)
    if without.requests or without.refusals:
        rows.append(("(no key)", "use", "local", *_figures(without)))
    if rows:
        _print_persons(rows)
    elif any(not key_state.fault for key_state in key_states):
        click.echo("nobody has a key")
    for host, persons in lacking.items():
        for person, state in persons.items():
            click.echo(f"{host}: {person} is {state}; by the last one: {_state(last[person])}")
    if any(lacking.values()):
        click.echo(f"→ {command_text('key', 'list', '--fix')}")
    for key_state in key_states:
        if key_state.fault:
            click.echo(f"{key_state.host}: {key_state.fault}", err=True)


def _print_persons(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a line for each person; on a phone the figures have lines of their own."""
    if is_narrow():
        for person, role, state, requests, refusals, tokens, last in rows:
            click.echo(f"{person}  {role}, {state}")
            when = f", last {last}" if last else ""
            print_indented(f"{requests} requests, {refusals} refused, {tokens} tokens{when}")
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
    return (str(total.requests), str(total.refusals), tokens, (total.last or "")[:10])


def _short(count: int) -> str:
    """Return a count in at most six characters: 9999, 12.3k, 45.6M."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if count >= 10 ** (power + 1):
            return f"{count / 10**power:.1f}{unit}"
    return str(count)
