"""Users, groups, memberships and logins. No password, and no hash of one, leaves the host."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from lockstep.onhost.facts.reader_helpers import Facts, lines_of_file, seal

_Entry = TypeVar("_Entry")


def read(question: dict[str, Any]) -> Facts:
    """Yield accounts and groups.

    `question` has the "names" of accounts, "groups", and the "rights": groups whose members are
    wanted by name. With "others" every account and group is yielded, with memberships and logins;
    they need the "key".
    """
    accounts = {
        entry.pw_name: entry for entry in _existing_entries(pwd.getpwnam, question["names"])
    }
    groups = {
        entry.gr_name: entry
        for entry in _existing_entries(grp.getgrnam, [*question["groups"], *question["rights"]])
    }
    if question["others"]:
        # A directory service may list fewer than it knows by name.
        accounts |= {entry.pw_name: entry for entry in pwd.getpwall()}
        groups |= {entry.gr_name: entry for entry in grp.getgrall()}
    wanted_groups = groups if question["others"] else question["groups"]
    group_names = {entry.gr_gid: entry.gr_name for entry in groups.values()}
    for name, account in accounts.items():
        yield "account", name, f"uid {account.pw_uid}"
        yield "account home", name, account.pw_dir
        yield "account shell", name, account.pw_shell
    for name, entry in groups.items():
        if name in wanted_groups:
            yield "group", name, f"gid {entry.gr_gid}"
    memberships = [(name, group) for group in groups for name in groups[group].gr_mem]
    # A group of one's own says nothing.
    memberships += [
        (name, group)
        for name, account in accounts.items()
        if (group := group_names.get(account.pw_gid, name)) != name
    ]
    for name, group in memberships:
        if group in question["rights"] or question["others"]:
            kind = "right" if group in question["rights"] else "member"
            yield kind, f"{name} in {group}", "yes"
    if question["others"]:
        yield from _login_credentials(question["key"], accounts.values())


def is_known(name: str) -> bool:
    """Tell whether an account exists."""
    return bool(_existing_entries(pwd.getpwnam, [name]))


def _existing_entries(by_name: Callable[[str], _Entry], names: Iterable[str]) -> list[_Entry]:
    """Return the entries of those names that exist."""
    entries = []
    for name in names:
        with suppress(KeyError):
            entries.append(by_name(name))
    return entries


def _login_credentials(key: str, accounts: Iterable[pwd.struct_passwd]) -> Facts:
    for account in accounts:
        for line in lines_of_file(os.path.join(account.pw_dir, ".ssh", "authorized_keys")):
            words = line.split()
            if words and not line.startswith("#"):
                # The comment of a key names its owner; the key itself is only compared.
                key_seal = seal(key, line.encode())
                yield "login key", f"{account.pw_name}: {words[-1][:40]} {key_seal[:6]}", key_seal
    for line in lines_of_file("/etc/shadow"):
        name, password = line.split(":")[:2]
        yield "password", name, _password_state(password)


def _password_state(password: str) -> str:
    if not password:
        return "none needed"
    return "locked" if password.startswith(("!", "*")) else "set"
