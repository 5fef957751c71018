"""The deploy's own files and folders, what is left of earlier ones, its secrets, and settings of
the system in files that are not its own.

The text of a private file never leaves the host: a keyed hash says whether it is the wanted one.
Nor does a text that is known already.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.facts.reading import Facts, below, listed, mode, owner, rows, seal, seal_file
from lockstep.onhost.records import ours

# Above this, the size stands for the content, bytes: no settings are that long.
_LONG = 4 * 2**20
_FSTAB = "/etc/fstab"
_ID = re.compile(rb"(UUID|PARTUUID|LABEL)=\S+")


def read(asked: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Path → {"kind", "mode", "owner", "group", "text"}, of a private file its "seal", and "sha256"
    where that is the known one; null for none. Asked: "paths", those of them that are "private",
    the "key" that seals these, of others the SHA-256 that is "known", and those of "paths" that
    are "absent" by the inventory: one of these that is somebody else's is none.
    """
    private, known = set(asked.get("private", [])), asked.get("known", {})
    stays = _foreign_paths(asked.get("absent", []))
    return {
        path: None
        if path in stays
        else _described(path, asked["key"] if path in private else None, known.get(path))
        for path in asked["paths"]
    }


def _foreign_paths(absent: Iterable[str]) -> set[str]:
    """Those of the paths at which something of somebody else's is."""
    judge = ours.Ours()
    return {path for path in absent if judge.file(path)}


def _described(path: str, key: str | None, known: str | None) -> dict[str, Any] | None:
    try:
        # /data/models may be a link to another disk: the folder it leads to is what counts.
        entry = os.stat(path) if os.path.isdir(path) else os.lstat(path)
    except OSError:
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(entry.st_mode), "other")
    user, group = ours.owners(entry)
    found = {"kind": kind, "mode": mode(entry), "owner": user, "group": group, "text": None}
    if kind == "file":
        with open(path, "rb") as content:
            whole = content.read()
        digest = hashlib.sha256(whole).hexdigest()
        if key:
            found["seal"] = seal(key, whole)
        elif digest == known:
            found["sha256"] = digest
        else:
            found["text"] = whole.decode("utf-8", "replace")
    return found


def links(paths: Iterable[str]) -> dict[str, str | None]:
    """Path → what the link there says, null where there is no link."""
    return {path: os.readlink(path) if os.path.islink(path) else None for path in paths}


def marked(asked: dict[str, list[str]]) -> list[str]:
    """Files that an earlier deploy wrote. Asked: "folders" in which a file's first lines say so,
    and patterns of files ("named"; "**" is any depth of folders), which need no such lines where
    they lie in folders of ours alone.
    """
    found = [
        path
        for folder in asked["folders"]
        for path in below(folder)
        if not os.path.islink(path) and ours.marked(Path(path))
    ]
    for pattern in asked["named"]:
        paths = glob.glob(pattern, recursive=True)
        found += [path for path in paths if ours.in_homes(path) or ours.marked(Path(path))]
    return sorted(found)


def managed(asked: dict[str, Any]) -> Facts:
    """Content, mode and owner of the deploy's files and folders. Asked: "key", "files", "folders",
    and the "links" that the deploy makes.
    """
    for path in asked["files"]:
        if os.path.lexists(path):
            yield "file", path, content(asked["key"], path)
            yield "file mode", path, owner(os.lstat(path))
    for path in asked["folders"]:
        # A folder may be a link to another disk: where it leads is what counts.
        if os.path.isdir(path):
            yield "folder", path, owner(os.stat(path))
    for path, leads in links(asked["links"]).items():
        if leads:
            yield "link", path, leads


def leftovers(asked: dict[str, Any]) -> Facts:
    """Files of an earlier deploy, and files in the deploy's own folders that are not its own.
    Asked: "key", the deploy's "files" and what must be "absent"; folders where a mark tells
    ("marked", in which "scripts" has those of operators too) and of its "own"; what may be there
    besides ("allowed", and everything "inside" some folders).
    """
    known = set(asked["files"])
    stays = _foreign_paths(asked["absent"])
    for path in asked["absent"]:
        if os.path.lexists(path) and path not in stays:
            yield "leftover", path, "present"
    for folder in asked["marked"]:
        for path in below(folder):
            if path in known:
                continue
            if not os.path.islink(path) and ours.marked(Path(path)):
                yield "leftover", path, "present"
            elif folder == asked["scripts"]:
                yield "script", path, content(asked["key"], path)
    allowed, inside = known | set(asked["allowed"]), tuple(asked["inside"])
    for folder in asked["own"]:
        for path in strangers(folder, allowed, inside):
            yield "foreign file", path, "present"


def strangers(folder: str, allowed: set[str], inside: tuple[str, ...]) -> Iterator[str]:
    """What is not the deploy's own in a folder of its own; a whole foreign folder once. One that
    ends with "/" in `allowed` may be there without a file.
    """
    for path in listed(folder):
        if path in allowed or path.startswith(inside) or path.endswith("/__pycache__"):
            continue
        within = (*allowed, *inside)
        if os.path.isdir(path) and any(each.startswith(f"{path}/") for each in within):
            yield from strangers(path, allowed, inside)
        else:
            yield path


def secrets(asked: dict[str, Any]) -> Facts:
    """Secrets: that they are there and for whom; of what they are, at most a keyed hash. Asked:
    "key", the "secrets", those of them with named "entries" and those that several hosts share
    ("shared"), and the hub's "token".
    """
    for path in asked["secrets"]:
        if not os.path.exists(path):
            continue
        yield "secret", path, owner(os.stat(path))
        if path in asked["shared"]:
            yield "shared key", path, seal_file(asked["key"], path)
        # A line of another file is a key itself, and no part of that is a name.
        lines = rows(path) if path in asked["entries"] else []
        for line in lines:
            name, mark, value = line.partition("=")
            if mark:
                yield "secret entry", f"{path} {name}", "set" if value.strip() else "empty"
    token = asked["token"]
    if os.path.exists(token):
        yield "hub token mode", token, owner(os.stat(token))
        yield "hub token", token, seal_file(asked["key"], token)


def content(key: str, path: str) -> str:
    """The keyed hash of a file, or what else it is."""
    entry = os.lstat(path)
    if stat.S_ISLNK(entry.st_mode):
        return f"link to {os.readlink(path)}"
    if not stat.S_ISREG(entry.st_mode):
        return "no regular file"
    return f"{entry.st_size} bytes" if entry.st_size > _LONG else seal_file(key, path)


def settings(asked: dict[str, Any]) -> Facts:
    """Content, mode and owner of everything that sets the system up and is not the deploy's. Asked:
    "key"; the "places" of settings, of which the paths in "known" and what begins with one of
    "theirs" are other readers' matter.
    """
    known, theirs = set(asked["known"]), tuple(asked["theirs"])
    for path in (path for place in asked["places"] for path in below(place)):
        link = path.startswith(ours.UNITS) and os.path.islink(path)
        if path in known or link or path.startswith(theirs) or ours.marked(Path(path)):
            continue
        if path == _FSTAB:
            # A disk has an identity of its own.
            whole = _ID.sub(rb"\1=(own)", Path(path).read_bytes())
            yield "setting", path, seal(asked["key"], whole)
        else:
            yield "setting", path, content(asked["key"], path)
        yield "setting mode", path, owner(os.lstat(path))
