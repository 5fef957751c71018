"""Packages, accounts, kernel settings and the tools venv. Argument: what is asked for, by kind."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from typing import Any


def packages(names: list[str]) -> dict[str, str]:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status} ${Version}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def account(name: str) -> dict[str, Any] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = [group.gr_name for group in grp.getgrall() if name in group.gr_mem]
    groups.append(grp.getgrgid(entry.pw_gid).gr_name)
    return {"uid": entry.pw_uid, "home": entry.pw_dir, "groups": sorted(set(groups))}


def group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def sysctl(key: str) -> str | None:
    try:
        with open("/proc/sys/" + key.replace(".", "/"), encoding="utf-8") as text:
            return " ".join(text.read().split())
    except OSError:
        return None


def distributions(venv: str) -> dict[str, str]:
    """Name → version of what is installed in a venv, read from its metadata folders.

    A venv whose installation was not seen to its end counts as empty.
    """
    found: dict[str, str] = {}
    if os.path.exists(os.path.join(venv, "unfinished")):
        return found
    lib = os.path.join(venv, "lib")
    for python in os.listdir(lib) if os.path.isdir(lib) else []:
        folder = os.path.join(lib, python, "site-packages")
        for entry in os.listdir(folder) if os.path.isdir(folder) else []:
            # An install that was cut off leaves a metadata folder without RECORD.
            whole = os.path.exists(os.path.join(folder, entry, "RECORD"))
            if entry.endswith(".dist-info") and whole:
                name, _, version = entry[: -len(".dist-info")].partition("-")
                found[name.lower().replace("_", "-").replace(".", "-")] = version
    return found


def link(path: str) -> str | None:
    """What a link says; None where there is no link."""
    return os.readlink(path) if os.path.islink(path) else None


def main(asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "packages": packages(asked.get("packages", [])),
        "accounts": {name: account(name) for name in asked.get("accounts", [])},
        "groups": {name: group(name) for name in asked.get("groups", [])},
        "sysctls": {key: sysctl(key) for key in asked.get("sysctls", [])},
        "venvs": {path: distributions(path) for path in asked.get("venvs", [])},
        "links": {path: link(path) for path in asked.get("links", [])},
    }
