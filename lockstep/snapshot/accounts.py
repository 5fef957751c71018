"""Users, groups, memberships, and who may log in how. No password, no hash of one leaves."""

from __future__ import annotations

import grp
import os
import pwd

from lockstep.snapshot.collected import Collected, text


def accounts(found: Collected) -> None:
    """Every account and group."""
    groups = {entry.gr_gid: entry.gr_name for entry in grp.getgrall()}
    for entry in pwd.getpwall():
        name = entry.pw_name
        found.put("account", name, f"uid {entry.pw_uid}")
        found.put("account home", name, entry.pw_dir)
        found.put("account shell", name, entry.pw_shell)
        # A group of one's own says nothing.
        if groups.get(entry.pw_gid, name) != name:
            found.put("member", f"{name} in {groups[entry.pw_gid]}", "yes")
        keys = os.path.join(entry.pw_dir, ".ssh", "authorized_keys")
        for line in (text(keys) or "").splitlines():
            words = line.split()
            if words and not line.startswith("#"):
                # The comment of a key says whose it is; the key itself is only compared.
                sealed = found.seal(line.encode())
                found.put("login key", f"{name}: {words[-1][:40]} {sealed[:6]}", sealed)
    for group in grp.getgrall():
        found.put("group", group.gr_name, f"gid {group.gr_gid}")
        for name in group.gr_mem:
            kind = "right" if group.gr_name in found.asked["rights"] else "member"
            found.put(kind, f"{name} in {group.gr_name}", "yes")
    for line in (text("/etc/shadow") or "").splitlines():
        name, password = line.split(":")[:2]
        found.put("password", name, _state(password))


def _state(password: str) -> str:
    if not password:
        return "none needed"
    return "locked" if password.startswith(("!", "*")) else "set"
