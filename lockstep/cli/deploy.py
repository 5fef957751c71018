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

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.plan import print_plan
from lockstep.cli.shared import DONE, FINDINGS, INTERRUPTED, LIMIT, UNUSABLE, confirm, has_errors
from lockstep.core import terminal
from lockstep.core.errors import paragraph
from lockstep.deploy import child, closing, events
from lockstep.deploy.course import Course
from lockstep.deploy.logs import new_log
from lockstep.deploy.plain import Plain
from lockstep.deploy.plan import make
from lockstep.fleet.hosts import KEEP_HOT, LOCK, WHAT, choose, deploy_command
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
    """Bring hosts to what the inventory and the lock say.

    It is the deploy of `pyinfra INVENTORY deploy.py`; all that this prints is in a log file.
    Ctrl-C ends it within ten seconds, and the same command goes on where it ended.

    Exit codes: 0 done; 1 a host failed, a finding stands in the way, or nobody agreed; 2 wrong
    use; 130 ended by Ctrl-C.
    """
    if diff and not dry:
        raise click.UsageError("--diff shows what differs, and goes with --dry")
    # An inventory without hosts would be a deploy to nobody, which went well.
    choose(inventory, limit)
    if dry:
        made = make(inventory)
        print_plan(made, limit)
        if has_errors(made.findings):
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
    what: str = "",
    lock: Path | None = None,
    begin: Callable[[], None] = lambda: None,
) -> int:
    """Deploy, and show it as every command does that deploys; its exit code.

    Args:
        inventory: The inventory file.
        limit: Only these hosts; () for all.
        dry: Only look.
        diff: Show what differs in each file.
        yes: Ask nothing.
        keep_hot: Leave hosts as they are whose hot model would be interrupted.
        what: What it is for the log of the hosts ("rollback").
        lock: The lock to go by; None: that of the inventory.
        begin: Called before the first change, once nothing stands in the way and people agreed.
    """
    began = time.monotonic()
    course = Course(began)
    options = ["--dry", *(["--diff"] if diff else [])] if dry else ["-y"]
    argv = deploy_command(inventory, limit, options)
    path, log = new_log()

    def agree(found: Sequence[events.Interrupts]) -> bool:
        agreed = _agree(found, yes, keep_hot)
        if agreed:
            begin()
        return agreed

    view = _view(course, agree)
    with log, contextlib.closing(view):
        view.begin(_short_path(inventory), _short_path(path))
        log.write(f"{shlex.join(argv)}\n")
        folder = inventories.folder_of(inventory)
        told = {KEEP_HOT: "1" if keep_hot else "", WHAT: what, LOCK: str(lock or "")}
        environment = {**os.environ, **{name: value for name, value in told.items() if value}}
        code, interrupted = child.follow(argv, folder, environment, log, view)
    different = path.read_text(encoding="utf-8").splitlines() if diff else None
    for text in _end(view, code, interrupted, dry, different, keep_hot):
        _print(text)
    if interrupted:
        return INTERRUPTED
    if code == UNUSABLE:
        return UNUSABLE
    return FINDINGS if code or course.failed or course.refused else DONE


def _view(course: Course, agree: Callable[[Sequence[events.Interrupts]], bool]) -> Plain:
    asking: dict[str, Any] = {"agree": agree, "password": _password}
    console = terminal.console()
    drawn = console.is_terminal and not console.is_dumb_terminal
    if drawn and console.encoding.lower().startswith("utf"):
        # It takes a while to import, and most of those who do not watch are programs.
        from lockstep.deploy.screen import Screen

        return Screen(course, console, **asking)
    return Plain(course, _print, **asking)


def _agree(found: Sequence[events.Interrupts], yes: bool, keep_hot: bool) -> bool:
    """Say what the deploy interrupts, and ask whether it may."""
    for text in closing.interruptions(found, keep_hot):
        _print(text)
    if yes or keep_hot or not found:
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
    interrupted: bool,
    dry: bool,
    log: Sequence[str] | None,
    keep_hot: bool,
) -> Iterator[str]:
    course = view.course
    command = typed("deploy")
    if interrupted and not course.agreed:
        yield "Ended by Ctrl-C. Nothing was changed."
    elif interrupted:
        at = course.step or "checks"
        yield f"Ended by Ctrl-C at: {at}. `{command}` goes on from there."
    elif course.failed and not course.refused:
        yield from closing.failure(course, view.tail, command)
    elif code or course.refused or course.over is None:
        yield from map(paragraph, closing.unexplained_end(course, view.tail[""]))
    elif dry:
        yield from closing.dry_run(course, log, keep_hot)
    else:
        yield from closing.success(course, typed, time.monotonic())


def _short_path(path: Path) -> str:
    """A path as short as it can be typed here."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _print(text: str) -> None:
    click.echo("\n".join(map(_filled, text.split("\n"))))


def _filled(line: str) -> str:
    """A line that a terminal does not break inside a word; a long word stays whole."""
    if not sys.stdout.isatty() or len(line) <= (width := terminal.console().width):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
