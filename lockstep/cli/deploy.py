"""`lockstep deploy`: the deploy of `deploy.py`, on one quiet screen."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from lockstep.cli.inventory_option import INVENTORY, typed
from lockstep.cli.shared import DONE, FINDINGS, INTERRUPTED, LIMIT, UNUSABLE
from lockstep.core import terminal
from lockstep.core.errors import paragraph
from lockstep.deploy import child, closing, events
from lockstep.deploy.course import Course
from lockstep.deploy.logs import new_log
from lockstep.deploy.plain import Plain
from lockstep.fleet.hosts import choose, deploy_command
from lockstep.inventory import inventory_file as inventories


@click.command()
@INVENTORY
@LIMIT
@click.option(
    "--dry", is_flag=True, help="Show what would change and be interrupted; change nothing."
)
@click.option("--diff", is_flag=True, help="With --dry: what differs in each file.")
@click.option("--yes", is_flag=True, help="Ask nothing before a hot model is interrupted.")
def deploy(inventory: Path, limit: Sequence[str], dry: bool, diff: bool, yes: bool) -> int:
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
    began = time.monotonic()
    course = Course(began)
    options = ["--dry", *(["--diff"] if diff else [])] if dry else ["-y"]
    argv = deploy_command(inventory, limit, options)
    path, log = new_log()
    view = _view(course, yes)
    with log:
        view.begin(_short_path(inventory), _short_path(path))
        log.write(f"{shlex.join(argv)}\n")
        folder = inventories.folder_of(inventory)
        code, interrupted = child.follow(argv, folder, dict(os.environ), log, view)
    view.close()
    different = path.read_text(encoding="utf-8").splitlines() if diff else None
    for text in _end(view, code, interrupted, dry, different):
        _print(text)
    if interrupted:
        return INTERRUPTED
    if code == UNUSABLE:
        return UNUSABLE
    return FINDINGS if code or course.failed or course.refused else DONE


def _view(course: Course, yes: bool) -> Plain:
    asking: dict[str, Any] = {"agree": lambda found: _agree(found, yes), "password": _password}
    console = terminal.console()
    drawn = console.is_terminal and not console.is_dumb_terminal
    if drawn and console.encoding.lower().startswith("utf"):
        # It takes a while to import, and most of those who do not watch are programs.
        from lockstep.deploy.screen import Screen

        return Screen(course, console, **asking)
    return Plain(course, _print, **asking)


def _agree(found: Sequence[events.Interrupts], yes: bool) -> bool:
    """Say what the deploy interrupts, and ask whether it may."""
    for text in closing.interruptions(found):
        _print(text)
    if yes or not found:
        return True
    if not sys.stdin.isatty():
        _print("Nobody can be asked here: --yes goes on.")
        return False
    return click.confirm("Go on?")


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
) -> Iterator[str]:
    course = view.course
    command = typed("deploy")
    if interrupted:
        at = course.step or "checks"
        yield f"Ended by Ctrl-C at: {at}. `{command}` goes on from there."
    elif course.failed and not course.refused:
        yield from closing.failed(course, view.tail, command)
    elif code or course.refused or course.over is None:
        yield from map(paragraph, closing.ended(course, view.tail[""]))
    elif dry:
        yield from closing.dry(course, log)
    else:
        yield from closing.done(course, typed, time.monotonic())


def _short_path(path: Path) -> str:
    """A path as short as it can be typed here."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _print(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        # Who read it has gone; the deploy goes on, and its log has it all.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
