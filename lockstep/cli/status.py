"""`lockstep status`: the hot models of all Sparks and their state, on one screen."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.live import Live

from lockstep.cli.common import DONE, FINDINGS, LIMIT, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY
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

    The command holds one connection to each Spark, all at once. It names silent Sparks, after at
    most ten seconds.

    Exit codes: 0 every Spark answered; 1 a rule is broken on one, or nobody has deployed to it yet;
    2 one did not answer; 130 Ctrl-C, which is how --watch ends.
    """
    _, selected_hosts = choose(inventory, limit)
    with watching(selected_hosts) as sparks:
        # A rate needs two readings.
        states = sparks.until(
            lambda all_: all(state.fault or state.looks > 1 for state in all_.values()), SILENT_S
        )
        for name, state in states.items():
            if state.facts is None and not state.fault:
                states[name] = SparkState(fault=f"no answer within {SILENT_S:.0f} s")
        if watch:
            states = _watch(sparks, as_json)
        elif as_json:
            print_json(_data(states))
        else:
            output = console()
            output.print(status_view.screen(states, min(output.width, 100)))
    return code(states)


def code(states: Mapping[str, SparkState]) -> int:
    """Return the exit code of all Sparks together."""
    deployed_states = [state for state in states.values() if state.is_deployed_to]
    if any(state.fault or state.facts is None for state in deployed_states):
        return UNUSABLE
    has_fault = len(deployed_states) < len(states) or any(
        state.facts["problems"] for state in deployed_states if state.facts
    )
    return FINDINGS if has_fault else DONE


def _watch(sparks: Watching, as_json: bool) -> dict[str, SparkState]:
    """Show the states until Ctrl-C, or until nobody reads the output any more."""
    output = console()
    is_drawn = output.is_terminal and not output.is_dumb_terminal and not as_json
    live_view = Live(console=output, auto_refresh=False, screen=True) if is_drawn else None
    with live_view or nullcontext():
        while not nobody_reads():
            states = sparks.all()
            table = status_view.screen(states, min(output.width, 100))
            if live_view:
                live_view.update(table, refresh=True)
            elif as_json:
                click.echo(json.dumps(_data(states), ensure_ascii=False))
            else:
                output.print(table)
            time.sleep(_REFRESH_S)
    return sparks.all()


def _data(states: Mapping[str, SparkState]) -> dict[str, Any]:
    return {
        name: {"facts": state.facts, "fault": state.fault or None} for name, state in states.items()
    }
