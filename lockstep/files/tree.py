"""Which managed files and folders differ from what a host has."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.facts.reading import seal

#: Path, text before or None, text after or None.
Difference = tuple[str, str | None, str | None]
#: By which a host seals what private files hold: another one in each run.
KEY = secrets.token_hex(32)


@dataclass(frozen=True)
class Folder:
    """A folder with its mode (octal text) and owner."""

    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class Changes:
    """What to write and remove.

    Attributes:
        files: Files whose text, mode or owner differs.
        folders: Folders that are missing or have another mode or owner.
        remove: Paths that must go.
        differences: One of each of them; "" stands for the text of a private file.
    """

    files: tuple[ManagedFile, ...] = ()
    folders: tuple[Folder, ...] = ()
    remove: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.remove)


def changes(
    files: Sequence[ManagedFile],
    folders: Sequence[Folder],
    absent: Sequence[str],
    found: Mapping[str, Mapping[str, Any] | None],
) -> Changes:
    """Compare what is asked for with what the reader `files` answered (path → state or None)."""
    differences: list[Difference] = []
    write, make, remove = [], [], []
    for folder in folders:
        if _attributes(found[folder.path], "folder") != (folder.mode, folder.owner, folder.group):
            make.append(folder)
            differences.append((f"{folder.path}/ ({folder.mode} {folder.owner})", None, ""))
    for file in files:
        have = found[file.path]
        holds = have is not None and _holds(have, file)
        if holds and _attributes(have, "file") == (file.mode, file.owner, file.group):
            continue
        write.append(file)
        if file.private:
            differences.append((file.path, "" if have else None, ""))
        else:
            before = file.text if holds else have["text"] if have else None
            differences.append((file.path, before, file.text))
    for path in absent:
        have = found[path]
        if have:
            remove.append(path)
            differences.append((path, have["text"] or "", None))
    return Changes(tuple(write), tuple(make), tuple(remove), tuple(differences))


def _holds(have: Mapping[str, Any], file: ManagedFile) -> bool:
    if "seal" in have:
        return bool(have["seal"] == seal(KEY, file.text.encode()))
    if "sha256" in have:
        return bool(have["sha256"] == hashlib.sha256(file.text.encode()).hexdigest())
    return bool(have["text"] == file.text)


def _attributes(have: Mapping[str, Any] | None, kind: str) -> tuple[str, str, str] | None:
    if have is None or have["kind"] != kind:
        return None
    return have["mode"], have["owner"], have["group"]
