"""Managed files: one round trip to compare all of them, one to write those that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyinfra import host, logger, state
from pyinfra.api import operation
from pyinfra.operations.util.files import generate_color_diff

from lockstep.files.managed_file import ManagedFile
from lockstep.files.tree import Folder, changes
from lockstep.tasks import remote
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands


@operation()
def tree(
    files: Sequence[ManagedFile], folders: Sequence[Folder] = (), absent: Sequence[str] = ()
) -> Commands:
    """Bring files and folders to the given text, mode and owner, and remove others.

    Units and sudoers files are shown to `systemd-analyze verify` and `visudo` first; one that is
    refused replaces nothing. Of folders the parents come first.
    """
    yield from write_tree(files, folders, absent)


def write_tree(
    files: Sequence[ManagedFile], folders: Sequence[Folder] = (), absent: Sequence[str] = ()
) -> Commands:
    """The commands of `tree`, for operations that compute their files on the way."""
    found = facts.ask("files")
    if found is None:
        return
    todo = changes(files, folders, absent, found)
    if not todo:
        host.noop(f"{len(files)} files are as they should be")
        return
    for path, before, after in todo.differences:
        _show(path, before, after)
    yield remote.write(
        {
            "folders": [asdict(folder) for folder in todo.folders],
            "files": [asdict(file) for file in todo.files],
            "remove": list(todo.remove),
        }
    )


def _show(path: str, before: str | None, after: str | None) -> None:
    word = "create" if before is None else "remove" if after is None else "modify"
    logger.info(f"{host.print_prefix}will {word} {path}")
    if state.config.DIFF:
        for line in generate_color_diff(_lines(before), _lines(after)):
            logger.info(f"  {line}")


def _lines(text: str | None) -> list[Any]:
    return [line + "\n" for line in (text or "").splitlines()]
