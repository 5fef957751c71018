"""The deploy's files and folders, leftovers of earlier deploys, secrets, and system settings.

The text of a private file never leaves the host: a keyed hash says whether it is the wanted one. A
text that is already known is not sent either.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.onhost.core import layout
from lockstep.onhost.facts.reader_helpers import (
    Facts,
    folder_paths,
    lines_of_file,
    marked_files,
    mode,
    mode_and_owner,
    paths_below,
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
        question: "paths", the "key" that seals contents, and those of "paths" that are "absent" by
            the inventory: a foreign file at one of these counts as none. "certificates": the file
            of each → the file of its authority, and the name in it; what other Sparks would refuse
            is of the kind "damaged". So are "authorities" without a key and its certificate.
            "shown": the files whose text may be sent → the seal of a text that is known.

    Returns:
        Path → {"kind", "mode", "owner", "group", "target" of a link, "text" of a shown file}, and
        the "seal" of a file.
    """
    stays, known_seals = _foreign_among_absent(question["absent"]), question.get("shown", {})
    damaged_paths = _damaged_certificates(question["certificates"], question["authorities"])
    descriptions = {
        path: None if path in stays else _describe(path, question["key"], known_seals.get(path))
        for path in question["paths"]
    }
    for path in damaged_paths:
        if have := descriptions.get(path):
            have["kind"] = "damaged"
            have.pop("seal", None)
    return descriptions


def _foreign_among_absent(absent: Iterable[str]) -> set[str]:
    """Return the paths at which there is something that belongs to somebody else."""
    judge = ownership.Ownership()
    return {path for path in absent if judge.foreign_owner_of_file(path)}


def _describe(path: str, key: str, known_seal: str | None) -> dict[str, Any] | None:
    try:
        # /data/models may be a link to another disk, so the folder that it leads to counts.
        entry = os.stat(path) if os.path.isdir(path) else os.lstat(path)
    except OSError:
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(entry.st_mode), "other")
    user, group = ownership.user_and_group_names(entry)
    description = {"kind": kind, "mode": mode(entry), "owner": user, "group": group, "text": None}
    description["target"] = os.readlink(path) if os.path.islink(path) else None
    if kind == "file":
        with open(path, "rb") as content:
            whole = content.read()
        description["seal"] = seal(key, whole)
        if known_seal and known_seal != description["seal"]:
            description["text"] = whole.decode("utf-8", "replace")
    return description


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


def leftovers(question: dict[str, Any]) -> Facts:
    """Yield files of an earlier deploy, and with "others" foreign files in the deploy's folders.

    Args:
        question: The deploy's "files"; folders in which a mark counts ("marked"); patterns of files
            ("named"; "**" is any depth of folders), which need no mark in folders of ours alone.
            For "others": "key", the folder of operators' "scripts", the deploy's "own" folders, and
            what may be there besides: "allowed" files, and everything "inside" some folders.
    """
    known_paths = set(question["files"])
    own_paths = {*_recorded_files()}
    for folder in question["marked"]:
        own_paths |= {*marked_files(folder)}
    for pattern in question["named"]:
        own_paths |= {
            path
            for path in glob.glob(pattern, recursive=True)
            if ownership.is_in_own_folder(path) or ownership.is_marked(Path(path))
        }
    for path in sorted(own_paths - known_paths):
        yield "leftover", path, "present"
    if not question["others"]:
        return
    known_paths |= own_paths
    for path in paths_below(question["scripts"]):
        if path not in known_paths:
            yield "script", path, sealed_content(question["key"], path)
    allowed_paths, inside = known_paths | set(question["allowed"]), tuple(question["inside"])
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


def _damaged_certificates(
    certificates: dict[str, tuple[str, str]], authorities: list[str]
) -> set[str]:
    """Return the certificates that other Sparks would refuse, and authorities that sign none."""
    if not certificates and not authorities:
        return set()
    # Imported here: TLS takes as long to import as all the rest of a reader.
    from lockstep.onhost.access import peer_tls

    return {
        *(
            path
            for path, (authority, name) in certificates.items()
            if not peer_tls.is_identity_accepted(Path(path), Path(authority), name)
        ),
        *(
            authority
            for authority in authorities
            if not peer_tls.has_key_and_certificate(Path(authority))
        ),
    }


def secrets(question: dict[str, Any]) -> Facts:
    """Yield whether secrets with named "entries" have them, and the hub's "token", sealed."""
    for path in question["entries"]:
        for line in lines_of_file(path):
            name, mark, value = line.partition("=")
            if mark:
                yield "secret entry", f"{path} {name}", "set" if value.strip() else "empty"
    token = question["token"]
    if os.path.exists(token):
        yield "hub token mode", token, mode_and_owner(os.stat(token))
        yield "hub token", token, seal_file(question["key"], token)


def sealed_content(key: str, path: str) -> str:
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
            yield "setting", path, sealed_content(question["key"], path)
        yield "setting mode", path, mode_and_owner(os.lstat(path))
