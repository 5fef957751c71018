"""Users, groups, memberships, and who may log in how. No password, no hash of one leaves."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any

from lockstep.onhost.facts.reading import Facts, rows, seal


def read(asked: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """{"accounts": {name: {"uid", "home", "groups"}}, "groups": {name: gid}}, null for none. Asked:
    "accounts" and "groups" by name.
    """
    return {
        "accounts": {name: account(name) for name in asked["accounts"]},
        "groups": {name: group(name) for name in asked["groups"]},
    }


def account(name: str) -> dict[str, Any] | None:
    """One account; None for none."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = {each.gr_name for each in grp.getgrall() if name in each.gr_mem}
    groups.add(grp.getgrgid(entry.pw_gid).gr_name)
    return {"uid": entry.pw_uid, "home": entry.pw_dir, "groups": sorted(groups)}


def group(name: str) -> int | None:
    """The number of a group; None for none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def every(asked: dict[str, Any]) -> Facts:
    """Every account and group. Asked: "key", and the "rights": groups whose members are asked for
    by name.
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
                # The comment of a key says whose it is; the key itself is only compared.
                sealed = seal(asked["key"], line.encode())
                yield "login key", f"{name}: {words[-1][:40]} {sealed[:6]}", sealed
    for each in grp.getgrall():
        yield "group", each.gr_name, f"gid {each.gr_gid}"
        for name in each.gr_mem:
            kind = "right" if each.gr_name in asked["rights"] else "member"
            yield kind, f"{name} in {each.gr_name}", "yes"
    for line in rows("/etc/shadow"):
        name, password = line.split(":")[:2]
        yield "password", name, _state(password)


def _state(password: str) -> str:
    if not password:
        return "none needed"
    return "locked" if password.startswith(("!", "*")) else "set"
