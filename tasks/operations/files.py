"""Managed files: one round trip to compare all of them, one to write those that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyinfra import host, logger, state
from pyinfra.api import operation
from pyinfra.operations.util.files import generate_color_diff

from lockstep.files.managed_file import PROGRAMS, Folder, ManagedFile
from lockstep.resources.files import Difference, file_changes
from lockstep.tasks.run import log_filter, remote_commands
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run.remote_commands import Commands


@operation()
def write_files(
    files: Sequence[ManagedFile], folders: Sequence[Folder] = (), absent: Sequence[str] = ()
) -> Commands:
    """Give files and folders the wanted text, mode and owner, and remove others.

    Units and sudoers files are shown to `systemd-analyze verify` and `visudo` first; a refused file
    replaces nothing. Parent folders come first.
    """
    yield from file_writing_commands(files, folders, absent)


def file_writing_commands(
    files: Sequence[ManagedFile], folders: Sequence[Folder] = (), absent: Sequence[str] = ()
) -> Commands:
    """Return the commands of `write_files`, for operations that compute their files on the way."""
    present_files = facts.reader_answer("files")
    if present_files is None:
        return
    todo = file_changes(files, folders, absent, present_files)
    if not todo:
        host.noop(f"{len(files)} files are as they should be")
        return
    _print_differences(todo.differences)
    yield remote_commands.write_files_command(
        {
            "folders": [asdict(folder) for folder in todo.folders],
            "files": [asdict(file) for file in todo.files],
            "remove": list(todo.remove),
        }
    )


def _print_differences(differences: Sequence[Difference]) -> None:
    """Print each path, but only the number of our programs; with --diff all with differences."""
    programs: Counter[str] = Counter()
    for path, old_text, new_text in differences:
        word = "create" if old_text is None else "remove" if new_text is None else "modify"
        if path.startswith(f"{PROGRAMS}/") and not state.config.DIFF and log_filter.is_filter_on():
            programs[word] += 1
            continue
        logger.info(f"{host.print_prefix}will {word} {path}")
        if state.config.DIFF:
            for line in generate_color_diff(_lines_of_text(old_text), _lines_of_text(new_text)):
                logger.info(f"  {line}")
    for word, count in programs.items():
        logger.info(f"{host.print_prefix}will {word} {count} file(s) in {PROGRAMS}")


def _lines_of_text(text: str | None) -> list[Any]:
    return [line + "\n" for line in (text or "").splitlines()]
