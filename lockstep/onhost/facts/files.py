"""The deploy's files and folders, leftovers of earlier deploys, secrets, and system settings.

The text of a private file never leaves the host: a keyed hash says whether it is the wanted one. A
text that is already known is not sent either.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import layout
from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    mode,
    owner,
    paths_below,
    rows,
    seal,
    seal_file,
)
from lockstep.onhost.records import generations, ownership

# Bytes; above this, the size stands for the content: no settings are that long.
_LONG = 4 * 2**20
_FSTAB = "/etc/fstab"
_ID = re.compile(rb"(UUID|PARTUUID|LABEL)=\S+")


def read(question: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Return a description of each path, null if nothing is there.

    Args:
        question: "paths", those of them that are "private", the "key" that seals these, the SHA-256
            of others that is "known", and those of "paths" that are "absent" by the inventory. A
            foreign file at one of these counts as none, and so does a damaged one among those that
            are "certificates", as for `secrets`.

    Returns:
        Path → {"kind", "mode", "owner", "group", "text"}; for a private file its "seal", and
        "sha256" if that is the known one.
    """
    private, known_hashes = set(question.get("private", [])), question.get("known", {})
    as_none = _foreign_paths(question.get("absent", []))
    as_none |= damaged_certificates(question.get("certificates", {}))
    return {
        path: None
        if path in as_none
        else _describe(path, question["key"] if path in private else None, known_hashes.get(path))
        for path in question["paths"]
    }


def _foreign_paths(absent: Iterable[str]) -> set[str]:
    """Return the paths at which there is something that belongs to somebody else."""
    judge = ownership.Ownership()
    return {path for path in absent if judge.owner_of_file(path)}


def _describe(path: str, key: str | None, known_hash: str | None) -> dict[str, Any] | None:
    try:
        # /data/models may be a link to another disk, so the folder that it leads to counts.
        entry = os.stat(path) if os.path.isdir(path) else os.lstat(path)
    except OSError:
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(entry.st_mode), "other")
    user, group = ownership.user_and_group_names(entry)
    description = {"kind": kind, "mode": mode(entry), "owner": user, "group": group, "text": None}
    if kind == "file":
        with open(path, "rb") as content:
            whole = content.read()
        digest = hashlib.sha256(whole).hexdigest()
        if key:
            description["seal"] = seal(key, whole)
        elif digest == known_hash:
            description["sha256"] = digest
        else:
            description["text"] = whole.decode("utf-8", "replace")
    return description


def links(paths: Iterable[str]) -> dict[str, str | None]:
    """Return the target of the link at each path, null if there is no link."""
    return {path: os.readlink(path) if os.path.islink(path) else None for path in paths}


def marked_files(question: dict[str, list[str]]) -> list[str]:
    """Return the files that an earlier deploy wrote.

    `question` has "folders" in which a file's first lines have our mark, and patterns of files
    ("named"; "**" is any depth of folders), which need no mark if they lie in folders of ours
    alone.
    """
    marked_paths = [
        path
        for folder in question["folders"]
        for path in paths_below(folder)
        if not os.path.islink(path) and ownership.is_marked(Path(path))
    ]
    for pattern in question["named"]:
        paths = glob.glob(pattern, recursive=True)
        marked_paths += [
            path
            for path in paths
            if ownership.is_in_own_folder(path) or ownership.is_marked(Path(path))
        ]
    return sorted({*marked_paths, *_recorded_files()})


def _recorded_files() -> Iterator[str]:
    """Yield the files outside our folders that are still as the last deploy wrote them.

    An owner's extra file has no mark, so the record alone says that a deploy brought it.
    """
    paths = layout.Paths()
    records = generations.begun_record(paths), generations.newest_record(paths)
    for file in (file for record in filter(None, records) for file in record["files"]):
        path = file["path"]
        with suppress(OSError):
            is_unchanged = Path(path).read_bytes() == file["text"].encode()
            if is_unchanged and not ownership.is_in_own_folder(path):
                yield path


def managed_files(question: dict[str, Any]) -> Facts:
    """Yield content, mode and owner of the deploy's files and folders.

    `question` has "key", "files", "folders", and the "links" that the deploy makes.
    """
    for path in question["files"]:
        if os.path.lexists(path):
            yield "file", path, content(question["key"], path)
            yield "file mode", path, owner(os.lstat(path))
    for path in question["folders"]:
        # A folder may be a link to another disk, so the folder that it leads to counts.
        if os.path.isdir(path):
            yield "folder", path, owner(os.stat(path))
    for path, leads in links(question["links"]).items():
        if leads:
            yield "link", path, leads


def leftovers(question: dict[str, Any]) -> Facts:
    """Yield files of an earlier deploy, and foreign files in the deploy's own folders.

    Args:
        question: "key", the deploy's "files" and those that must be "absent"; folders in which a
            mark counts ("marked", of which "scripts" also has operators' scripts) and the deploy's
            "own" folders; files that may be there besides ("allowed", and everything "inside" some
            folders).
    """
    known_paths = set(question["files"])
    stays = _foreign_paths(question["absent"])
    for path in question["absent"]:
        if os.path.lexists(path) and path not in stays:
            yield "leftover", path, "present"
    for folder in question["marked"]:
        for path in paths_below(folder):
            if path in known_paths:
                continue
            if not os.path.islink(path) and ownership.is_marked(Path(path)):
                yield "leftover", path, "present"
            elif folder == question["scripts"]:
                yield "script", path, content(question["key"], path)
    allowed_paths, inside = known_paths | set(question["allowed"]), tuple(question["inside"])
    for path in sorted({*_recorded_files()} - known_paths):
        if not ownership.is_marked(Path(path)):
            yield "leftover", path, "present"
    for folder in question["own"]:
        for path in strangers(folder, allowed_paths, inside):
            yield "foreign file", path, "present"


def strangers(folder: str, allowed_paths: set[str], inside: tuple[str, ...]) -> Iterator[str]:
    """Yield foreign entries in our folder; a whole foreign folder once, not per file.

    A folder in `allowed_paths` ends with "/" and may be there without a file.
    """
    for path in folder_paths(folder):
        if path in allowed_paths or path.startswith(inside) or path.endswith("/__pycache__"):
            continue
        within = (*allowed_paths, *inside)
        if os.path.isdir(path) and any(inner_path.startswith(f"{path}/") for inner_path in within):
            yield from strangers(path, allowed_paths, inside)
        else:
            yield path


def damaged_certificates(certificates: dict[str, tuple[str, str]]) -> set[str]:
    """Return the files among certificates that other Sparks would refuse, and their authorities.

    `certificates` is the file of each → the file of its authority, and the name in it.
    """
    return {
        *(
            path
            for path, (authority, name) in certificates.items()
            if not peer_tls.is_accepted(Path(path), Path(authority), name)
        ),
        *(
            authority
            for authority, _ in certificates.values()
            if not peer_tls.is_authority(Path(authority))
        ),
    }


def secrets(question: dict[str, Any]) -> Facts:
    """Yield secrets: their presence, owner and mode, and of their content at most a keyed hash.

    `question` has "key", the "secrets", those of them with named "entries", those that several
    hosts share ("shared"), those that are "certificates", and the hub's "token".
    """
    damaged_paths = damaged_certificates(question["certificates"])
    for path in question["secrets"]:
        if not os.path.exists(path):
            continue
        if path in damaged_paths:
            yield "secret", path, "damaged"
            continue
        yield "secret", path, owner(os.stat(path))
        if path in question["shared"]:
            yield "shared key", path, seal_file(question["key"], path)
        # A line of another file is a key itself, and no part of it is a name.
        lines = rows(path) if path in question["entries"] else []
        for line in lines:
            name, mark, value = line.partition("=")
            if mark:
                yield "secret entry", f"{path} {name}", "set" if value.strip() else "empty"
    token = question["token"]
    if os.path.exists(token):
        yield "hub token mode", token, owner(os.stat(token))
        yield "hub token", token, seal_file(question["key"], token)


def content(key: str, path: str) -> str:
    """Return the keyed hash of a file, or a description if it is no such file."""
    entry = os.lstat(path)
    if stat.S_ISLNK(entry.st_mode):
        return f"link to {os.readlink(path)}"
    if not stat.S_ISREG(entry.st_mode):
        return "no regular file"
    return f"{entry.st_size} bytes" if entry.st_size > _LONG else seal_file(key, path)


def foreign_setting_files(question: dict[str, Any]) -> Facts:
    """Yield content, mode and owner of system settings that are not the deploy's.

    `question` has "key" and the "places" of settings. Other readers report the paths in "known" and
    those that begin with one of "theirs".
    """
    known_paths, foreign_folders = set(question["known"]), tuple(question["theirs"])
    for path in (path for place in question["places"] for path in paths_below(place)):
        link = path.startswith(ownership.UNITS) and os.path.islink(path)
        if (
            path in known_paths
            or link
            or path.startswith(foreign_folders)
            or ownership.is_marked(Path(path))
        ):
            continue
        if path == _FSTAB:
            # Each disk has an identity of its own.
            whole = _ID.sub(rb"\1=(own)", Path(path).read_bytes())
            yield "setting", path, seal(question["key"], whole)
        else:
            yield "setting", path, content(question["key"], path)
        yield "setting mode", path, owner(os.lstat(path))
