"""`lockstep status`: what is hot, where, and how it fares, of all Sparks in one screen."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.live import Live

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import DONE, FINDINGS, LIMIT, UNUSABLE, print_json
from lockstep.core.terminal import console, nobody_reads
from lockstep.fleet import status_view
from lockstep.fleet.hosts import choose
from lockstep.fleet.watching import SILENT_S, SparkState, Watching, watching

_REFRESH_S = 1.0


@click.command()
@INVENTORY
@LIMIT
@click.option("--watch", is_flag=True, help="Show it anew each second until Ctrl-C.")
@click.option(
    "--json", "as_json", is_flag=True, help="The same facts for programs; a line each with --watch."
)
def status(inventory: Path, limit: tuple[str, ...], watch: bool, as_json: bool) -> int:
    """Show what is hot on each Spark, and how it fares.

    It holds one connection to each, all at once. A Spark that is silent is said, and is waited for
    no longer than ten seconds.

    Exit codes: 0 every Spark answered; 1 a rule is broken on one, or nobody has deployed to it yet;
    2 one did not answer; 130 Ctrl-C, which is how --watch ends.
    """
    _, chosen = choose(inventory, limit)
    with watching(chosen) as sparks:
        # Two looks make a rate.
        states = sparks.until(
            lambda all_: all(each.fault or each.looks > 1 for each in all_.values()), SILENT_S
        )
        for name, each in states.items():
            if each.facts is None and not each.fault:
                states[name] = SparkState(fault=f"no answer within {SILENT_S:.0f} s")
        if watch:
            states = _watched(sparks, as_json)
        elif as_json:
            print_json(_data(states))
        else:
            output = console()
            output.print(status_view.screen(states, min(output.width, 100)))
    return code(states)


def code(states: Mapping[str, SparkState]) -> int:
    """The exit code of all together."""
    there = [each for each in states.values() if each.is_deployed_to]
    if any(each.fault or each.facts is None for each in there):
        return UNUSABLE
    broken = len(there) < len(states) or any(each.facts["problems"] for each in there if each.facts)
    return FINDINGS if broken else DONE


def _watched(sparks: Watching, as_json: bool) -> dict[str, SparkState]:
    """Show them until Ctrl-C, or until nobody reads it any more."""
    output = console()
    is_drawn = output.is_terminal and not output.is_dumb_terminal and not as_json
    drawn = Live(console=output, auto_refresh=False, screen=True) if is_drawn else None
    with drawn or nullcontext():
        while not nobody_reads():
            states = sparks.all()
            table = status_view.screen(states, min(output.width, 100))
            if drawn:
                drawn.update(table, refresh=True)
            elif as_json:
                click.echo(json.dumps(_data(states), ensure_ascii=False))
            else:
                output.print(table)
            time.sleep(_REFRESH_S)
    return sparks.all()


def _data(states: Mapping[str, SparkState]) -> dict[str, Any]:
    return {
        name: {"facts": each.facts, "fault": each.fault or None} for name, each in states.items()
    }
