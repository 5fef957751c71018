"""`lockstep deploy`: the deploy of `deploy.py`, on one quiet screen."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import DONE, FINDINGS, INTERRUPTED, LIMIT, UNUSABLE, confirm, has_errors
from lockstep.cli.inventory_option import INVENTORY, command_text
from lockstep.cli.plan import print_plan
from lockstep.core import terminal
from lockstep.core.errors import paragraph
from lockstep.deploy import child, closing, events
from lockstep.deploy.course import Course
from lockstep.deploy.logs import new_log
from lockstep.deploy.plain import Plain
from lockstep.deploy.plan import make
from lockstep.fleet.hosts import KEEP_HOT, WHAT, choose, deploy_command
from lockstep.inventory import inventory_file as inventories


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--dry",
    is_flag=True,
    help="Show the plan, what would change and be interrupted; change nothing.",
)
@click.option("--diff", is_flag=True, help="With --dry: what differs in each file.")
@click.option("--yes", is_flag=True, help="Ask nothing before a hot model is interrupted.")
@click.option(
    "--keep-hot",
    is_flag=True,
    help="Leave each host as it is whose hot model would be interrupted; it ends with 1 there.",
)
def deploy(
    inventory: Path, limit: Sequence[str], dry: bool, diff: bool, yes: bool, keep_hot: bool
) -> int:
    """Bring hosts to the state of inventory and lock.

    It is the deploy of `pyinfra INVENTORY deploy.py`, whose whole output goes to a log file. Ctrl-C
    ends it within ten seconds; then a Spark that was deployed before returns to what it was. The
    same command begins again, and downloads nothing twice.

    Exit codes: 0 done; 1 a host failed, a finding stands in the way, or nobody agreed; 2 wrong use;
    130 ended by Ctrl-C.
    """
    if diff and not dry:
        raise click.UsageError("--diff shows what differs, and goes with --dry")
    # Without this, a deploy to an inventory without hosts would count as a success.
    choose(inventory, limit)
    if dry:
        fleet_plan = make(inventory)
        print_plan(fleet_plan, limit)
        if has_errors(fleet_plan.findings):
            return FINDINGS
    return carry_out(inventory, limit, dry=dry, diff=diff, yes=yes, keep_hot=keep_hot)


def carry_out(
    inventory: Path,
    limit: Sequence[str] = (),
    *,
    dry: bool = False,
    diff: bool = False,
    yes: bool = False,
    keep_hot: bool = False,
    command: str = "",
) -> int:
    """Deploy with the display that all deploying commands share; return the exit code.

    Args:
        inventory: The inventory file.
        limit: Only these hosts; () for all.
        dry: Change nothing.
        diff: Show the differences in each file.
        yes: Ask nothing.
        keep_hot: Leave hosts as they are if their hot model would be interrupted.
        command: The command's name in the log of the hosts ("diff --fix").
    """
    began = time.monotonic()
    course = Course(began)
    options = ["--dry", *(["--diff"] if diff else [])] if dry else ["-y"]
    argv = deploy_command(inventory, limit, options)
    path, log = new_log()

    view = _view(course, lambda interruptions: _agree(interruptions, yes, keep_hot))
    with log, contextlib.closing(view):
        view.begin(_short_path(inventory), _short_path(path))
        log.write(f"{shlex.join(argv)}\n")
        folder = inventories.folder_of(inventory)
        extra_environment = {
            KEEP_HOT: "1" if keep_hot else "",
            WHAT: command,
        }
        environment = {
            **os.environ,
            **{name: value for name, value in extra_environment.items() if value},
        }
        code, is_interrupted = child.follow(argv, folder, environment, log, view)
    different = path.read_text(encoding="utf-8").splitlines() if diff else None
    for text in _end(view, code, is_interrupted, dry, different, keep_hot):
        _print(text)
    if is_interrupted:
        return INTERRUPTED
    if code == UNUSABLE:
        return UNUSABLE
    return FINDINGS if code or course.has_failed or course.refusal else DONE


def _view(course: Course, agree: Callable[[Sequence[events.Interrupts]], bool]) -> Plain:
    asking: dict[str, Any] = {"agree": agree, "password": _password}
    console = terminal.console()
    is_drawn = console.is_terminal and not console.is_dumb_terminal
    if is_drawn and console.encoding.lower().startswith("utf"):
        # The screen takes a while to import, and most callers without a terminal are programs.
        from lockstep.deploy.screen import Screen

        return Screen(course, console, **asking)
    return Plain(course, _print, **asking)


def _agree(interruptions: Sequence[events.Interrupts], yes: bool, keep_hot: bool) -> bool:
    """Print the interruptions that the deploy causes, and ask for permission."""
    for text in closing.interruptions(interruptions, keep_hot):
        _print(text)
    if yes or keep_hot or not interruptions:
        return True
    if not sys.stdin.isatty():
        click.echo("Nobody can be asked here: --yes goes on.")
        return False
    return confirm("Go on?")


def _password(prompt: str) -> str | None:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return None


def _end(
    view: Plain,
    code: int,
    is_interrupted: bool,
    dry: bool,
    log: Sequence[str] | None,
    keep_hot: bool,
) -> Iterator[str]:
    course = view.course
    command = command_text("deploy")
    if is_interrupted and not course.is_agreed:
        yield "Ended by Ctrl-C. Nothing was changed."
    elif is_interrupted:
        at = course.step or "checks"
        yield f"Ended by Ctrl-C at: {at}. `{command}` goes on from there."
    elif course.has_failed and not course.refusal:
        yield from closing.failure(course, view.tail, command)
    elif code or course.refusal or course.over is None:
        yield from map(paragraph, closing.unexplained_end(course, view.tail[""]))
    elif dry:
        yield from closing.dry_run(course, log, keep_hot)
    else:
        yield from closing.success(course, command_text, time.monotonic())


def _short_path(path: Path) -> str:
    """Return the shortest form of a path that works here."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _print(text: str) -> None:
    click.echo("\n".join(map(_wrap, text.split("\n"))))


def _wrap(line: str) -> str:
    """Wrap a line so that a terminal breaks no word; a long word stays whole."""
    if not sys.stdout.isatty() or len(line) <= (width := terminal.console().width):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
