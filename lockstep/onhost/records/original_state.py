"""Baseline of the host before the first deploy; each item is recorded once.

This module is sent to a host with names of "paths", "accounts", "groups" and "sysctls". Items
already recorded keep their first record. `lockstep remove` restores it.
"""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files, layout
from lockstep.onhost.records import json_records, ownership


@dataclass
class Baseline:
    """The recorded state.

    Attributes:
        whole: Whether it was recorded before the first deploy. Else an earlier version of Lockstep
            had been here, and recorded items may be its own.
        paths: Path → "folder 0755 root root", "file …", "link …"; None if nothing was there.
        accounts: Account → its groups; None if there was none.
        groups: Group → its members by name; None if there was none.
        sysctls: Kernel setting → its value; None if this kernel has no such setting.
    """

    whole: bool = True
    paths: dict[str, str | None] = field(default_factory=dict)
    accounts: dict[str, list[str] | None] = field(default_factory=dict)
    groups: dict[str, list[str] | None] = field(default_factory=dict)
    sysctls: dict[str, str | None] = field(default_factory=dict)


#: Parts of the record that are requested by name.
PARTS = ("paths", "accounts", "groups", "sysctls")
# Every deploy makes these first, so without a record only an earlier version can have made them.
# Their folders may hold files of others.
_EARLIER = (
    *("etc/lockstep/models.json", "usr/local/lib/lockstep/__main__.py"),
    "var/lib/lockstep-deploy",
)


def load(paths: layout.Paths) -> Baseline | None:
    """Return the record; None if it is missing or unreadable."""
    return json_records.load(Baseline, paths.baseline)


def unrecorded_items(
    paths: layout.Paths, names_by_part: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return the requested names that are not recorded yet; {} if all are."""
    baseline = load(paths)
    missing = {
        part: [name for name in names_by_part[part] if name not in getattr(baseline, part, {})]
        for part in PARTS
    }
    return missing if baseline is None or any(missing.values()) else {}


def record_items(paths: layout.Paths, names_by_part: dict[str, list[str]]) -> None:
    """Record the present state of names that are not recorded yet; raise OSError on failure."""
    baseline = load(paths)
    if baseline is None:
        # An unreadable record tells nothing of the time before.
        earlier = any((paths.root / folder).exists() for folder in _EARLIER)
        baseline = Baseline(whole=not earlier)
    readers: dict[str, Callable[[str], Any]] = {
        "paths": lambda name: describe_path(paths.root, name),
        "accounts": groups_of,
        "groups": members_of_group,
        "sysctls": lambda name: present_kernel_setting(paths.root, name),
    }
    for part, read in readers.items():
        have: dict[str, Any] = getattr(baseline, part)
        have.update({name: read(name) for name in names_by_part[part] if name not in have})
    paths.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.write_json(paths.baseline, asdict(baseline), mode=0o600)


def describe_path(root: Path, path: str) -> str | None:
    """Return kind, mode and owners of the entry at a path; None without one."""
    try:
        entry = (root / path.lstrip("/")).lstat()
    except OSError:
        return None
    kind = "folder" if stat.S_ISDIR(entry.st_mode) else "file"
    kind = "link" if stat.S_ISLNK(entry.st_mode) else kind
    return " ".join(
        (kind, f"{stat.S_IMODE(entry.st_mode):04o}", *ownership.user_and_group_names(entry))
    )


def groups_of(account: str) -> list[str] | None:
    """Return the names of an account's groups; None without the account."""
    if ownership.home_of(account) is None:
        return None
    return sorted(group.gr_name for group in grp.getgrall() if account in group.gr_mem)


def members_of_group(group: str) -> list[str] | None:
    """Return the names of a group's members; None without the group."""
    try:
        return sorted(grp.getgrnam(group).gr_mem)
    except KeyError:
        return None


def present_kernel_setting(root: Path, key: str) -> str | None:
    """Return the value of a kernel setting; None if this kernel lacks it."""
    try:
        path = root / "proc/sys" / key.replace(".", "/")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return " ".join(text.split())


def with_parent_folders(paths: Iterable[str]) -> list[str]:
    """Return paths with all folders above them, except those in which everything is ours."""
    every = {
        str(folder)
        for path in paths
        for folder in (Path(path), *Path(path).parents)
        if str(folder) != "/"
    }
    return sorted(path for path in every if not ownership.is_in_own_folder(path))


def answer_request(names_by_part: dict[str, list[str]]) -> None:
    """Record names on this host, as `record_items` does."""
    os.umask(0o077)
    record_items(layout.Paths(), names_by_part)
