"""The comparison of managed files and folders with those on a host."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.facts.reader_helpers import seal

#: Path, earlier text or None, later text or None.
Difference = tuple[str, str | None, str | None]
#: The key with which a host seals the contents of private files; each run has its own.
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
    """The files and folders to write and remove.

    Attributes:
        files: Files whose text, mode or owner differs.
        folders: Folders that are missing or have another mode or owner.
        remove: Paths that must go.
        differences: One for each of them; "" stands for the text of a private file.
    """

    files: tuple[ManagedFile, ...] = ()
    folders: tuple[Folder, ...] = ()
    remove: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.remove)


def file_changes(
    files: Sequence[ManagedFile],
    folders: Sequence[Folder],
    absent: Sequence[str],
    present_files: Mapping[str, Mapping[str, Any] | None],
) -> Changes:
    """Compare the wanted files with the answer of the reader `files` (path → state or None)."""
    differences: list[Difference] = []
    write, make, remove = [], [], []
    for folder in folders:
        if _attributes(present_files[folder.path], "folder") != (
            folder.mode,
            folder.owner,
            folder.group,
        ):
            make.append(folder)
            differences.append((f"{folder.path}/ ({folder.mode} {folder.owner})", None, ""))
    for file in files:
        have = present_files[file.path]
        holds = have is not None and _has_same_state(have, file)
        if holds and _attributes(have, "file") == (file.mode, file.owner, file.group):
            continue
        write.append(file)
        if file.private:
            differences.append((file.path, "" if have else None, ""))
        else:
            old_text = file.text if holds else have["text"] if have else None
            differences.append((file.path, old_text, file.text))
    for path in absent:
        have = present_files[path]
        if have:
            remove.append(path)
            differences.append((path, have["text"] or "", None))
    return Changes(tuple(write), tuple(make), tuple(remove), tuple(differences))


def _has_same_state(have: Mapping[str, Any], file: ManagedFile) -> bool:
    if "seal" in have:
        return bool(have["seal"] == seal(KEY, file.text.encode()))
    if "sha256" in have:
        return bool(have["sha256"] == hashlib.sha256(file.text.encode()).hexdigest())
    return bool(have["text"] == file.text)


def _attributes(have: Mapping[str, Any] | None, kind: str) -> tuple[str, str, str] | None:
    if have is None or have["kind"] != kind:
        return None
    return have["mode"], have["owner"], have["group"]
