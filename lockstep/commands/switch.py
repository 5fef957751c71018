"""`lockstep switch`: `switch.sh` on several Sparks at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import click

from lockstep import inventory as inventories
from lockstep.commands.shared import UNUSABLE, errors_as_sentences
from lockstep.errors import InventoryError
from lockstep.inventory_host import HostPlan
from lockstep.login import NO_CONNECTION, Login, login
from lockstep.scripts import switch_path
from lockstep.variants import FALLBACK

# Exit codes of switch.sh from best to worst; any other one is the worst but for an empty host.
_BEST_TO_WORST = (0, 3, 1, 75, 77, UNUSABLE)
_NOTHING_HOT = 4


@dataclass(frozen=True)
class Ended:
    """How a switch on one host ended: exit code and its last line."""

    host: str
    code: int
    line: str


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.argument("target")
@click.option("--limit", multiple=True, metavar="HOST", help="Only this host; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait while somebody else is switching.")
@click.option("--dry", is_flag=True, help="Only say whether it could work.")
@click.option("-v", "--verbose", is_flag=True, help="Every line of every host as it comes.")
@click.pass_context
@errors_as_sentences
def switch(
    context: click.Context,
    inventory: Path,
    target: str,
    limit: tuple[str, ...],
    wait: bool,
    dry: bool,
    verbose: bool,
) -> None:
    """Make TARGET (or none) hot on every Spark of INVENTORY, on all at once.

    One line per host when it ends. Each host rolls back for itself, and a lost connection ends the
    watching only. The exit code is the worst of all hosts': 0 done, 1 the model before is hot,
    2 wrong use or no connection, 3 a fallback is hot, 4 no model is hot, or not on every member
    of a cluster what was before, 75 somebody else is switching, 77 not permitted.
    """
    if wait and dry:
        raise click.UsageError("--wait and --dry exclude each other")
    flags = ["--wait"] if wait else ["--dry"] if dry else []
    work = [
        # What ends a group is asked for on each member, and the first one does it for all.
        (where, [program, target, *(flags or (["--wait"] if member and target == "none" else []))])
        for where, program, member in _hosts(inventory, target, limit)
    ]
    codes = []
    with ThreadPoolExecutor(len(work)) as pool:
        jobs = [pool.submit(_run, where, argv, _teller(where, verbose)) for where, argv in work]
        for job in as_completed(jobs):
            ended = job.result()
            codes.append(ended.code)
            verdict = "ok" if ended.code == 0 else f"exit {ended.code}"
            click.echo(f"{ended.host}  {verdict}  {ended.line}")
    context.exit(worst(codes))


def worst(codes: Sequence[int]) -> int:
    """The exit code of all hosts together."""
    if _NOTHING_HOT in codes:
        return _NOTHING_HOT
    known = [code if code in _BEST_TO_WORST else UNUSABLE for code in codes]
    return max(known, key=_BEST_TO_WORST.index)


def _hosts(inventory: Path, target: str, limit: tuple[str, ...]) -> list[tuple[Login, str, bool]]:
    """Login and switch.sh of each chosen host, and whether it is a member of a cluster.

    InventoryError for unknown hosts and targets.
    """
    plans = {plan.name: plan for plan in inventories.load(inventory)}
    data = inventories.merged(inventory)
    if unknown := [name for name in limit if name not in plans]:
        raise InventoryError(
            "no such host", where=str(inventory), found=", ".join(unknown), allowed=", ".join(plans)
        )
    found = []
    for name in limit or plans:
        plan = plans[name]
        names = [
            each.name + suffix
            for each in plan.targets
            for suffix in ("", FALLBACK)
            if not suffix or each.fallback is not None
        ]
        if target not in (*names, "none"):
            raise InventoryError(
                f"{name} has no target {target!r}",
                where=str(inventory),
                allowed=", ".join([*names, "none"]),
                remedy="Nothing was switched on any host.",
            )
        found.append((login(name, data[name]), switch_path(plan.settings), bool(plan.groups)))
    asked = {each[0].name for each in found}
    return [each for each in found if not _follows(plans[each[0].name], target, asked)]


def _follows(plan: HostPlan, target: str, asked: Collection[str]) -> bool:
    """Whether another host that is asked switches this one along: the first of its cluster does."""
    names = {each.name + suffix: each.group for each in plan.targets for suffix in ("", FALLBACK)}
    group = names.get(target)
    return group is not None and group.rank > 0 and group.members[0].name in asked


def _teller(where: Login, verbose: bool) -> Callable[[str], None]:
    return lambda line: click.echo(f"{where.name}: {line}") if verbose else None


def _run(where: Login, argv: Sequence[str], tell: Callable[[str], None]) -> Ended:
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
            tell(line)
            # Continuation lines are indented: the verdict is all of them together.
            last = f"{last} {line.strip()}" if line.startswith("  ") else line or last
    code = process.returncode
    if where.words and code == NO_CONNECTION:
        return Ended(
            where.name, UNUSABLE, f"no connection ({last}); a switch that has begun goes on there"
        )
    return Ended(where.name, code, last)
