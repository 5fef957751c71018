"""`lockstep switch`: `switch.sh` on several Sparks at once."""

from __future__ import annotations

import contextlib
import difflib
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.shared import INTERRUPTED, LIMIT, UNUSABLE
from lockstep.core.errors import InventoryError
from lockstep.core.failed_starts import failed_starts
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
# What switch.sh says once a switch has begun; before that it may wait for another one. A cluster's
# lines may have the member's name before them.
_BEGUN = re.compile(
    r"(\S+: )?(… )?(a switch to|stopping|starting|removing|waiting for|took:)|.* FAILED\b"
)


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
    at the end stands one line per host, with the reason under it where a start failed. A lost
    connection or Ctrl-C ends only the display. With `cancel` as TARGET the switch that is under way
    ends, and what was hot before comes back.

    The exit code is the worst of all hosts: 0 done; 1 the model before is hot; 2 wrong use or no
    connection; 3 a fallback is hot; 4 no model is hot, or some members of a cluster did not get
    their model back; 5 cancelled, and all is as before; 75 another switch is under way; 77 not
    permitted; 78 nobody has deployed to it yet; 130 Ctrl-C ended the display.
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
        code, told, is_lost = _run(host.login, argv, verbose, phases)
        # Ctrl-C ends our ssh, too, and then no connection was lost: that is known at the end.
        if is_lost:
            lost.append(told)
        else:
            phases.say(told)
        return code

    hosts = _hosts(inventory, target, limit)
    phases = Phases(host.name for host in hosts)
    lost: list[str] = []
    try:
        with phases.live_display() if not verbose else contextlib.nullcontext():
            code = worst(at_once(switched, hosts))
    except KeyboardInterrupt:
        click.echo(_ended_by_ctrl_c([] if dry else phases.begun, dry), err=True)
        return INTERRUPTED
    for told in lost:
        click.echo(told)
    return code


def _ended_by_ctrl_c(begun: Sequence[str], dry: bool) -> str:
    if dry:
        return "Ended by Ctrl-C."
    status = f"`{typed('status')}` shows what is hot"
    if not begun:
        return f"Ended by Ctrl-C. No host has told of a switch that began; {status}."
    return (
        f"Ended by Ctrl-C. A switch that has begun goes on, on {', '.join(begun)}: {status}, "
        f"`{typed('switch', 'cancel')}` ends it."
    )


class Phases:
    """The last line of each host's switch, with its time; a terminal shows it live."""

    def __init__(self, hosts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last = dict.fromkeys(hosts, "")
        self._begun: set[str] = set()
        self._live: Live | None = None

    @property
    def begun(self) -> list[str]:
        """The hosts on which a switch has begun whose end is not known."""
        return [host for host in self._last if host in self._begun]

    def hear(self, host: str, line: str | None) -> None:
        """Take a host's line; None: its switch has ended, and its verdict is printed."""
        if line is None:
            del self._last[host]
        elif line.strip():
            self._last[host] = line.strip()
            if _BEGUN.match(line):
                self._begun.add(host)

    def say(self, text: str) -> None:
        """Print text that stays; it stands above the live table."""
        if self._live:
            self._live.console.print(Text(text), soft_wrap=True)
        else:
            click.echo(text)

    def live_display(self) -> contextlib.AbstractContextManager[object]:
        """A live table of the hosts that are still switching; nothing where no terminal is."""
        output = console()
        if not output.is_terminal or output.is_dumb_terminal:
            return contextlib.nullcontext()
        self._live = Live(console=output, get_renderable=self.table, transient=True)
        return self._live

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


def _run(where: Login, argv: Sequence[str], verbose: bool, phases: Phases) -> tuple[int, str, bool]:
    """Run switch.sh on one host; its exit code, how it ended, and whether we only lost sight."""
    try:
        return _heard(where, argv, verbose, phases)
    except OSError as fault:
        why = not_run(where, where.command(argv)[0], fault)
        code = _NO_SWITCH if why == NOT_DEPLOYED else UNUSABLE
        return code, f"{where.name}  exit {code}  {why}", False


def _heard(
    where: Login, argv: Sequence[str], verbose: bool, phases: Phases
) -> tuple[int, str, bool]:
    last = ""
    said: list[str] = []
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
                phases.say(f"{where.name}: {line}")
            phases.hear(where.name, line)
            # Continuation lines are indented: the verdict is all of them together.
            last = f"{last} {line.strip()}" if line.startswith("  ") else line or last
            said.append(line)
    code = process.returncode
    # A signal, as Ctrl-C is one, ended our ssh and not the switch.
    if where.words and (code == NO_CONNECTION or code < 0):
        fault = f"no connection ({last or 'ssh was ended here'})"
        phases.hear(where.name, fault)
        goes_on = "; the switch goes on there" if where.name in phases.begun else ""
        return UNUSABLE, f"{where.name}  exit {UNUSABLE}  {fault}{goes_on}", True
    if last == NOT_DEPLOYED or is_absent(argv[0], code, last):
        code, last = _NO_SWITCH, NOT_DEPLOYED
    verdict = f"{where.name}  {f'exit {code}' if code else 'ok'}  {last}"
    # Its own programs hear Ctrl-C where that is this machine.
    if code == INTERRUPTED:
        return code, verdict, True
    phases.hear(where.name, None)
    why = [] if verbose or not code else list(_reasons(said, last))
    return code, "\n".join((verdict, *why)), False


def _reasons(said: Sequence[str], verdict: str) -> Iterator[str]:
    """The lines of a host that say why starts failed; not those that its verdict is made of."""
    for first, *why in failed_starts(said):
        if not verdict.startswith(said[first]):
            yield from (f"  {said[at]}" for at in (first, *why))
