"""`lockstep switch`: `switch.sh` on several Sparks at once."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lockstep.cli.common import INTERRUPTED, LIMIT, UNUSABLE
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.core.errors import InventoryError
from lockstep.core.terminal import clock_text, console
from lockstep.fleet.hosts import NOT_DEPLOYED, Host, at_once, choose, is_absent, not_run
from lockstep.fleet.login import NO_CONNECTION, Login
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core import event_lines, schema
from lockstep.units.scripts import switch_path

# sysexits.h: EX_CONFIG. The host has no switch.sh.
_NO_SWITCH = 78
# Exit codes of switch.sh from best to worst. Any other code is the worst, except for an empty host.
_BEST_TO_WORST = (0, 3, 5, 1, 75, 77, _NO_SWITCH, UNUSABLE)
_NOTHING_HOT = 4


@click.command()
@INVENTORY
@click.argument("model")
@LIMIT
@click.option("--wait", is_flag=True, help="Wait for a switch that is under way.")
@click.option("--instead", is_flag=True, help="Cancel a switch that is under way first.")
@click.option("--dry", is_flag=True, help="Check whether it would work; change nothing.")
@click.option("-v", "--verbose", is_flag=True, help="Print every line of every host.")
def switch(
    inventory: Path,
    model: str,
    limit: tuple[str, ...],
    wait: bool,
    instead: bool,
    dry: bool,
    verbose: bool,
) -> int:
    """Make MODEL (or none) hot on every Spark.

    All hosts switch at once, and each rolls back on its own. A terminal shows the progress of each.
    At the end stands one line per host, with the reason under it if a start failed. A lost
    connection or Ctrl-C ends only the display. With `cancel` as MODEL the switch that is under way
    ends, and the model before comes back.

    The exit code is the worst of all hosts: 0 done; 1 the model before is hot; 2 wrong use or no
    connection; 3 a fallback is hot; 4 no model is hot, or some members of a cluster did not get
    their model back; 5 cancelled, and all is as before; 75 another switch is under way; 77 not
    permitted; 78 nobody has deployed to it yet; 130 Ctrl-C ended the display.
    """
    chosen_flags = {"--wait": wait, "--instead": instead, "--dry": dry}
    flags = [flag for flag, is_given in chosen_flags.items() if is_given]
    exclusive = [*flags, model] if model == "cancel" else flags
    if exclusive[1:]:
        raise click.UsageError(f"{' and '.join(exclusive)} exclude each other")

    def switch_host(host: Host) -> int:
        # Every member is asked to stop the cluster; the first member does it for all.
        waits = ["--wait"] if host.plan.groups and model == "none" else []
        argv = [switch_path(host.plan.settings), model, *(flags or waits)]
        code, text, is_lost = _run(host.login, argv, verbose, phases)
        # Ctrl-C also ends our ssh without a lost connection. The code knows this only at the end.
        if is_lost:
            lost_outputs.append(text)
        else:
            phases.say(text)
        return code

    hosts = _hosts(inventory, model, limit)
    phases = Phases(host.name for host in hosts)
    lost_outputs: list[str] = []
    try:
        with phases.live_display() if not verbose else contextlib.nullcontext():
            code = worst(at_once(switch_host, hosts))
    except KeyboardInterrupt:
        click.echo(_ended_by_ctrl_c([] if dry else phases.unfinished_hosts, dry), err=True)
        return INTERRUPTED
    for lost_output in lost_outputs:
        click.echo(lost_output)
    return code


def _ended_by_ctrl_c(unfinished_hosts: Sequence[str], dry: bool) -> str:
    if dry:
        return "Ended by Ctrl-C."
    status = f"`{command_text('status')}` shows what is hot"
    if not unfinished_hosts:
        return f"Ended by Ctrl-C. No host has told of a switch that began; {status}."
    return (
        f"Ended by Ctrl-C. A switch that has begun goes on, on {', '.join(unfinished_hosts)}: "
        f"{status}, "
        f"`{command_text('switch', 'cancel')}` ends it."
    )


class Phases:
    """The last line of each host's switch with its time; a terminal shows it live."""

    def __init__(self, hosts: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last = dict.fromkeys(hosts, "")
        self._unfinished_hosts: set[str] = set()
        self._live: Live | None = None

    @property
    def unfinished_hosts(self) -> list[str]:
        """The hosts on which a switch has begun whose end is unknown."""
        return [host for host in self._last if host in self._unfinished_hosts]

    def hear(self, host: str, line: str | None) -> None:
        """Record a host's line; None: its switch has ended, and its verdict is printed."""
        if line is None:
            del self._last[host]
        elif line.strip():
            self._last[host] = line.strip()
            # Before a switch begins, which may wait for another one, its lines are no events.
            if event_lines.kind_of(line):
                self._unfinished_hosts.add(host)

    def say(self, text: str) -> None:
        """Print text that stays above the live table."""
        if self._live:
            self._live.console.print(Text(text), soft_wrap=True)
        else:
            click.echo(text)

    def live_display(self) -> contextlib.AbstractContextManager[object]:
        """Return a live table of the hosts that still switch; a null context without a terminal."""
        terminal = console()
        if not terminal.is_terminal or terminal.is_dumb_terminal:
            return contextlib.nullcontext()
        self._live = Live(console=terminal, get_renderable=self.table, transient=True)
        return self._live

    def table(self) -> Table:
        """Return a table with each host's name, time and progress."""
        table = Table.grid(padding=(0, 2))
        took = clock_text(self._clock() - self._began)
        for host, line in tuple(self._last.items()):
            table.add_row(host, took, line)
        return table


def worst(codes: Sequence[int]) -> int:
    """Return the exit code of all hosts together."""
    if _NOTHING_HOT in codes:
        return _NOTHING_HOT
    known_codes = [code if code in _BEST_TO_WORST else UNUSABLE for code in codes]
    return max(known_codes, key=_BEST_TO_WORST.index)


def _hosts(inventory: Path, model: str, limit: tuple[str, ...]) -> list[Host]:
    """Return the hosts to ask among the chosen ones.

    Raises:
        InventoryError: an unknown host or model.
    """
    _, selected_hosts = choose(inventory, limit)
    for host in selected_hosts:
        names = [name for bound_model in host.plan.models for name, _, _ in bound_model.forms]
        if model not in (*names, "none", "cancel"):
            raise InventoryError(
                f"{host.name} has no model {model!r}, and nothing was switched on any host",
                where=str(inventory),
                allowed=", ".join([*names, "none", "cancel"]),
                remedy=schema.spelling_hint(model, names),
            )
    selected_names = {host.name for host in selected_hosts}
    return [host for host in selected_hosts if not _follows(host.plan, model, selected_names)]


def _follows(plan: HostPlan, model: str, selected_names: Collection[str]) -> bool:
    """Tell whether the first member of a host's cluster, also asked, switches this host along."""
    groups = {
        name: bound_model.group for bound_model in plan.models for name, _, _ in bound_model.forms
    }
    group = groups.get(model)
    return group is not None and group.rank > 0 and group.members[0].name in selected_names


def _run(where: Login, argv: Sequence[str], verbose: bool, phases: Phases) -> tuple[int, str, bool]:
    """Run switch.sh on one host; return its exit code, its verdict, and whether sight was lost."""
    try:
        return _follow_lines(where, argv, verbose, phases)
    except OSError as fault:
        why = not_run(where, where.command(["env"])[0], fault)
        code = _NO_SWITCH if why == NOT_DEPLOYED else UNUSABLE
        return code, f"{where.name}  exit {code}  {why}", False


def _follow_lines(
    where: Login, argv: Sequence[str], verbose: bool, phases: Phases
) -> tuple[int, str, bool]:
    last = ""
    lines: list[str] = []
    # A host of an earlier release prints text only: when a switch began, and why a start failed, is
    # not known then.
    with subprocess.Popen(
        where.command(["env", f"{event_lines.READER}=1", *argv]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in map(event_lines.read_event, map(str.rstrip, process.stdout)):
            if verbose:
                phases.say(f"{where.name}: {line}")
            phases.hear(where.name, line)
            # Continuation lines are indented, and the verdict is all of them together.
            last = f"{last} {line.strip()}" if line.startswith("  ") else line or last
            lines.append(line)
    code = process.returncode
    # A signal, such as Ctrl-C, ended our ssh and not the switch.
    if where.words and (code == NO_CONNECTION or code < 0):
        fault = f"no connection ({last or 'ssh was ended here'})"
        phases.hear(where.name, fault)
        goes_on = "; the switch goes on there" if where.name in phases.unfinished_hosts else ""
        return UNUSABLE, f"{where.name}  exit {UNUSABLE}  {fault}{goes_on}", True
    if is_absent(argv[0], code, last):
        code, last = _NO_SWITCH, NOT_DEPLOYED
    verdict = f"{where.name}  {f'exit {code}' if code else 'ok'}  {last}"
    # On this machine Ctrl-C reaches the programs of the switch too.
    if code == INTERRUPTED:
        return code, verdict, True
    phases.hear(where.name, None)
    why = [] if verbose or not code else list(_reasons(lines, last))
    return code, "\n".join((verdict, *why)), False


def _reasons(lines: Sequence[str], verdict: str) -> Iterator[str]:
    """Yield a host's lines that say why starts failed, without the lines of its verdict."""
    is_in_verdict = False
    for line in lines:
        kind = event_lines.kind_of(line)
        is_in_verdict = verdict.startswith(line) if kind == "failed" else is_in_verdict
        if kind in ("failed", "why") and not is_in_verdict:
            yield f"  {line}"
