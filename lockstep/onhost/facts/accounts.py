"""Users, groups, memberships and logins. No password, and no hash of one, leaves the host."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any

from lockstep.onhost.facts.reader_helpers import Facts, rows, seal


def read(question: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return accounts and groups, null for those that do not exist.

    Args:
        question: "accounts" and "groups" by name.

    Returns:
        {"accounts": {name: {"uid", "home", "groups"}}, "groups": {name: gid}}.
    """
    return {
        "accounts": {name: account(name) for name in question["accounts"]},
        "groups": {name: group(name) for name in question["groups"]},
    }


def account(name: str) -> dict[str, Any] | None:
    """Return one account, or None if it does not exist."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = {group_entry.gr_name for group_entry in grp.getgrall() if name in group_entry.gr_mem}
    groups.add(grp.getgrgid(entry.pw_gid).gr_name)
    return {"uid": entry.pw_uid, "home": entry.pw_dir, "groups": sorted(groups)}


def group(name: str) -> int | None:
    """Return the number of a group, or None if it does not exist."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def every(question: dict[str, Any]) -> Facts:
    """Yield every account and group.

    `question` has "key", and the "rights": groups whose members are wanted by name.
    """
    groups = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    for entry in pwd.getpwall():
        name = entry.pw_name
        yield "account", name, f"uid {entry.pw_uid}"
        yield "account home", name, entry.pw_dir
        yield "account shell", name, entry.pw_shell
        # A group of one's own says nothing.
        if groups.get(entry.pw_gid, name) != name:
            yield "member", f"{name} in {groups[entry.pw_gid]}", "yes"
        keys = os.path.join(entry.pw_dir, ".ssh", "authorized_keys")
        for line in rows(keys):
            words = line.split()
            if words and not line.startswith("#"):
                # The comment of a key names its owner; the key itself is only compared.
                password_seal = seal(question["key"], line.encode())
                yield "login key", f"{name}: {words[-1][:40]} {password_seal[:6]}", password_seal
    for group_entry in grp.getgrall():
        yield "group", group_entry.gr_name, f"gid {group_entry.gr_gid}"
        for name in group_entry.gr_mem:
            kind = "right" if group_entry.gr_name in question["rights"] else "member"
            yield kind, f"{name} in {group_entry.gr_name}", "yes"
    for line in rows("/etc/shadow"):
        name, password = line.split(":")[:2]
        yield "password", name, _state(password)


def _state(password: str) -> str:
    if not password:
        return "none needed"
    return "locked" if password.startswith(("!", "*")) else "set"
