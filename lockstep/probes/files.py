"""Text, mode and owner of files and folders.

Argument: {"paths": […], "private": […], "known": {PATH: SHA-256}}.

The text of a private file never leaves the host: its SHA-256 says whether it is the wanted one. Nor
does the text that is known already.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from typing import Any


def describe(path: str, private: bool, known: str | None) -> dict[str, Any] | None:
    try:
        # /data/models may be a link to another disk: the folder it leads to is what counts.
        entry = os.stat(path) if os.path.isdir(path) else os.lstat(path)
    except OSError:
        return None
    try:
        owner = pwd.getpwuid(entry.st_uid).pw_name
    except KeyError:
        owner = str(entry.st_uid)
    try:
        group = grp.getgrgid(entry.st_gid).gr_name
    except KeyError:
        group = str(entry.st_gid)
    kind = "file" if stat.S_ISREG(entry.st_mode) else "other"
    if stat.S_ISDIR(entry.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(entry.st_mode):
        kind = "link"
    mode = f"{stat.S_IMODE(entry.st_mode):04o}"
    found = {"kind": kind, "mode": mode, "owner": owner, "group": group, "text": None}
    if kind == "file":
        with open(path, "rb") as content:
            whole = content.read()
        digest = hashlib.sha256(whole).hexdigest()
        if private or digest == known:
            found["sha256"] = digest
        else:
            found["text"] = whole.decode("utf-8", "replace")
    return found


def main(asked: dict[str, Any]) -> dict[str, Any]:
    private = set(asked.get("private", []))
    known = asked.get("known", {})
    return {path: describe(path, path in private, known.get(path)) for path in asked["paths"]}
