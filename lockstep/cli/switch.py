"""`lockstep switch`: `switch.sh` on several Sparks at once."""

from __future__ import annotations

import contextlib
import difflib
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table

from lockstep.cli.inventory_option import INVENTORY
from lockstep.cli.shared import LIMIT, UNUSABLE
from lockstep.core.errors import InventoryError
from lockstep.core.terminal import clock_text, console
from lockstep.fleet.hosts import NOT_DEPLOYED, Host, at_once, choose, is_absent, not_run
from lockstep.fleet.login import NO_CONNECTION, Login
from lockstep.inventory.host import HostPlan
from lockstep.units.scripts import switch_path

# sysexits.h: EX_CONFIG. There is no switch.sh on the host.
_NO_SWITCH = 78
# Exit codes of switch.sh from best to worst; any other one is the worst but for an empty host.
_BEST_TO_WORST = (0, 3, 5, 1, 75, 77, _NO_SWITCH, UNUSABLE)
_NOTHING_HOT = 4


@click.command()
@INVENTORY
@click.argument("target")
@LIMIT
@click.option("--wait", is_flag=True, help="Wait for a switch that is under way.")
@click.option("--instead", is_flag=True, help="Cancel a switch that is under way first.")
@click.option("--dry", is_flag=True, help="Check whether it would work; change nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Print every line of every host.")
def switch(
    inventory: Path,
    target: str,
    limit: tuple[str, ...],
    wait: bool,
    instead: bool,
    dry: bool,
    verbose: bool,
) -> int:
    """Make TARGET (or none) hot on every Spark.

    All hosts switch at once, and each rolls back on its own. A terminal shows what each is at, and
    at the end stands one line per host. A lost connection ends only the display. With `cancel` as
    TARGET the switch that is under way ends, and what was hot before comes back.

    The exit code is the worst of all hosts: 0 done; 1 the model before is hot; 2 wrong use or no
    connection; 3 a fallback is hot; 4 no model is hot, or some members of a cluster did not get
    their model back; 5 cancelled, and all is as before; 75 another switch is under way; 77 not
    permitted; 78 nobody has deployed to it yet.
    """
    given = {"--wait": wait, "--instead": instead, "--dry": dry}
    flags = [flag for flag, is_given in given.items() if is_given]
    exclusive = [*flags, target] if target == "cancel" else flags
    if exclusive[1:]:
        raise click.UsageError(f"{' and '.join(exclusive)} exclude each other")

    def switched(host: Host) -> int:
        # What ends a group is asked for on each member, and the first one does it for all.
        waits = ["--wait"] if host.plan.groups and target == "none" else []
        argv = [switch_path(host.plan.settings), target, *(flags or waits)]
        return _run(host.login, argv, verbose, phases.hear)

    hosts = _hosts(inventory, target, limit)
    phases = Phases(host.name for host in hosts)
    with phases.live_display() if not verbose else contextlib.nullcontext():
        return worst(at_once(switched, hosts))


class Phases:
    """The last line of each host's switch, with its time; a terminal shows it live."""

    def __init__(self, hosts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last = dict.fromkeys(hosts, "")

    def hear(self, host: str, line: str | None) -> None:
        """Take a host's line; None: its switch has ended, and its verdict is printed."""
        if line is None:
            del self._last[host]
        elif line.strip():
            self._last[host] = line.strip()

    def live_display(self) -> contextlib.AbstractContextManager[object]:
        """A live table of the hosts that are still switching; nothing where no terminal is."""
        output = console()
        if not output.is_terminal or output.is_dumb_terminal:
            return contextlib.nullcontext()
        return Live(console=output, get_renderable=self.table, transient=True)

    def table(self) -> Table:
        """A row for each host: its name, how long, and what it is at."""
        table = Table.grid(padding=(0, 2))
        took = clock_text(self._clock() - self._began)
        for host, line in tuple(self._last.items()):
            table.add_row(host, took, line)
        return table


def worst(codes: Sequence[int]) -> int:
    """The exit code of all hosts together."""
    if _NOTHING_HOT in codes:
        return _NOTHING_HOT
    known = [code if code in _BEST_TO_WORST else UNUSABLE for code in codes]
    return max(known, key=_BEST_TO_WORST.index)


def _hosts(inventory: Path, target: str, limit: tuple[str, ...]) -> list[Host]:
    """The hosts to ask, of those that are chosen. InventoryError for unknown hosts and targets."""
    _, chosen = choose(inventory, limit)
    for host in chosen:
        names = [name for each in host.plan.targets for name, _, _ in each.forms]
        if target not in (*names, "none", "cancel"):
            near = difflib.get_close_matches(target, names, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            raise InventoryError(
                f"{host.name} has no target {target!r}",
                where=str(inventory),
                allowed=", ".join([*names, "none", "cancel"]),
                remedy=f"{meant}Nothing was switched on any host.",
            )
    asked = {host.name for host in chosen}
    return [host for host in chosen if not _follows(host.plan, target, asked)]


def _follows(plan: HostPlan, target: str, asked: Collection[str]) -> bool:
    """Whether another host that is asked switches this one along: the first of its cluster does."""
    groups = {name: each.group for each in plan.targets for name, _, _ in each.forms}
    group = groups.get(target)
    return group is not None and group.rank > 0 and group.members[0].name in asked


def _run(
    where: Login, argv: Sequence[str], verbose: bool, hear: Callable[[str, str | None], None]
) -> int:
    """Run switch.sh on one host, and say how it ended; its exit code."""
    try:
        code, last = _heard(where, argv, verbose, hear)
    except OSError as fault:
        code, last = UNUSABLE, not_run(where, where.command(argv)[0], fault)
    # A signal, as Ctrl-C is one, ended our ssh and not the switch.
    if where.words and (code == NO_CONNECTION or code < 0):
        last = last or "ssh was ended here"
        code, last = UNUSABLE, f"no connection ({last}); a switch that has begun goes on there"
    if last == NOT_DEPLOYED or is_absent(argv[0], code, last):
        code, last = _NO_SWITCH, NOT_DEPLOYED
    hear(where.name, None)
    click.echo(f"{where.name}  {f'exit {code}' if code else 'ok'}  {last}")
    return code


def _heard(
    where: Login, argv: Sequence[str], verbose: bool, hear: Callable[[str, str | None], None]
) -> tuple[int, str]:
    """How switch.sh on one host ended: its exit code, and its verdict."""
    last = ""
    with subprocess.Popen(
        where.command(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in map(str.rstrip, process.stdout):
            if verbose:
                click.echo(f"{where.name}: {line}")
            hear(where.name, line)
            # Continuation lines are indented: the verdict is all of them together.
            last = f"{last} {line.strip()}" if line.startswith("  ") else line or last
    return process.returncode, last
