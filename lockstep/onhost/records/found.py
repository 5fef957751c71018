"""What this host was before a deploy touched it: noted once of each thing that one may touch.

It is sent to a host and told names of "paths", "accounts", "groups" and "sysctls".
What is noted already stays as it was noted. `lockstep remove` goes back to it.
"""

from __future__ import annotations

import grp
import json
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic, layout
from lockstep.onhost.records import ours


@dataclass
class Found:
    """What was here.

    Attributes:
        whole: Whether it was noted before the first deploy. Else an earlier version of Lockstep had
            been here: what is noted as there may be its own.
        paths: Path → "folder 0755 root root", "file …", "link …"; None: nothing was there.
        accounts: Account → its groups; None: there was none.
        groups: Group → its members by name; None: there was none.
        sysctls: Kernel setting → its value; None: this kernel has no such setting.
    """

    whole: bool = True
    paths: dict[str, str | None] = field(default_factory=dict)
    accounts: dict[str, list[str] | None] = field(default_factory=dict)
    groups: dict[str, list[str] | None] = field(default_factory=dict)
    sysctls: dict[str, str | None] = field(default_factory=dict)


#: Parts of the record that are asked for by name.
PARTS = ("paths", "accounts", "groups", "sysctls")
# What every deploy has made first; before the record, only an earlier version did. In the folders
# of these files somebody else's may lie.
_EARLIER = (
    *("etc/lockstep/targets.json", "usr/local/lib/lockstep/__main__.py"),
    "var/lib/lockstep-deploy",
)


def load(paths: layout.Paths) -> Found | None:
    """The record; None where there is none or it cannot be read."""
    try:
        return Found(**json.loads(paths.found.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def unnoted(paths: layout.Paths, asked: dict[str, list[str]]) -> dict[str, list[str]]:
    """What of the question is not noted yet; {} where all is."""
    kept = load(paths)
    missing = {
        part: [name for name in asked[part] if name not in getattr(kept, part, {})]
        for part in PARTS
    }
    return missing if kept is None or any(missing.values()) else {}


def note(paths: layout.Paths, asked: dict[str, list[str]]) -> None:
    """Note what is here of what is not noted yet. OSError where that fails."""
    kept = load(paths)
    if kept is None:
        # A record that cannot be read any more tells nothing of the time before.
        earlier = any((paths.root / folder).exists() for folder in _EARLIER)
        kept = Found(whole=not earlier)
    readers: dict[str, Callable[[str], Any]] = {
        "paths": lambda name: described(paths.root, name),
        "accounts": groups_of,
        "groups": members,
        "sysctls": lambda name: setting(paths.root, name),
    }
    for part, read in readers.items():
        have: dict[str, Any] = getattr(kept, part)
        have.update({name: read(name) for name in asked[part] if name not in have})
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write_json(paths.found, asdict(kept), mode=0o600)


def described(root: Path, path: str) -> str | None:
    """Kind, mode and owners of what is at a path; None for nothing."""
    try:
        entry = (root / path.lstrip("/")).lstat()
    except OSError:
        return None
    kind = "folder" if stat.S_ISDIR(entry.st_mode) else "file"
    kind = "link" if stat.S_ISLNK(entry.st_mode) else kind
    return " ".join((kind, f"{stat.S_IMODE(entry.st_mode):04o}", *ours.owners(entry)))


def groups_of(account: str) -> list[str] | None:
    """Groups that an account is in by name; None for no account."""
    if ours.home_of(account) is None:
        return None
    return sorted(each.gr_name for each in grp.getgrall() if account in each.gr_mem)


def members(group: str) -> list[str] | None:
    """Members of a group by name; None for no group."""
    try:
        return sorted(grp.getgrnam(group).gr_mem)
    except KeyError:
        return None


def setting(root: Path, key: str) -> str | None:
    """A kernel setting; None where this kernel has none of that name."""
    try:
        text = (root / "proc/sys" / key.replace(".", "/")).read_text(encoding="utf-8")
    except OSError:
        return None
    return " ".join(text.split())


def parents(paths: Iterable[str]) -> list[str]:
    """Paths with every folder above them, but for those in which everything is ours."""
    every = {
        str(each)
        for path in paths
        for each in (Path(path), *Path(path).parents)
        if str(each) != "/"
    }
    return sorted(path for path in every if not ours.in_homes(path))


def take(asked: dict[str, list[str]]) -> None:
    """`note` on this host."""
    os.umask(0o077)
    note(layout.Paths(), asked)
