"""Python environments: the engine's and the tools', package by package and file by file."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
from collections.abc import Iterator

from lockstep.probes import engines
from lockstep.snapshot.collected import LIMIT_S, Collected, Unreadable

# What uv puts into a venv beside what it installs.
_OF_UV = {"__pycache__", "_virtualenv.py", "_virtualenv.pth"}
# An installation writes its record last, give or take the clock's grain, seconds.
_GRAIN_S = 2.0
_NAMED = 3
# What an editable installation writes into its checkout.
_BUILT = (":(exclude)build", ":(exclude,glob)**/*.egg-info/**")


def engine(found: Collected) -> None:
    """The venv engine of the wanted generation."""
    asked = found.asked["engine"]
    answer = engines.main(asked)
    found.records["engines"] = answer
    home = asked["home"]
    if not os.path.isdir(home):
        return
    current = answer["current"]
    found.put("engine", "current", os.path.basename(current) if current else "none")
    found.put("engine", "installation", "cut off" if answer["unfinished"] else "whole")
    if answer["environment"]["python"]:
        found.put("engine", "python", answer["environment"]["python"])
    for name, commit in answer["commits"].items():
        if commit:
            found.put("engine", f"{name} commit", commit)
            origin = answer["environment"]["origins"].get(name) or {}
            found.put("engine", f"{name} from", origin.get("url") or "an index")
            found.put("checkout", os.path.join(home, name), _checkout(os.path.join(home, name)))


def installed(found: Collected) -> None:
    """Distributions of each venv, and files that are not as they were installed."""
    for name, venv in found.asked["venvs"].items():
        python, folder = engines.site_packages(venv)
        if python is None:
            continue
        if name != "engine":
            found.put("tools", f"{name} python", python)
        for package, version in engines.environment(venv)["distributions"].items():
            if name == "engine":
                found.put("engine package", package, version)
            else:
                found.put("tools package", f"{name} {package}", version)
        for path, fault in _faults(folder, found.asked["deep"]):
            found.put("changed package file", path, fault)


def _checkout(source: str) -> str:
    """Whether a checkout has changes of its own. Git runs as the checkout's owner: what a
    repository configures may run programs."""
    entry = os.stat(source)
    try:
        done = subprocess.run(
            ["git", "-C", source, "status", "--porcelain", "--", ".", *_BUILT],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            user=entry.st_uid,
            group=entry.st_gid,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Unreadable(f"git status of {source}: {fault}") from fault
    if done.returncode != 0:
        raise Unreadable(f"git status of {source}: {done.stderr.strip()[-200:]}")
    changed = [line[3:] for line in done.stdout.splitlines()]
    if not changed:
        return "clean"
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    return f"changed: {', '.join(changed[:_NAMED])}{more}"


def _faults(folder: str, deep: bool) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of installed files that are missing or changed, and of strangers."""
    owned = set(_OF_UV)
    account = os.stat(folder).st_uid
    for entry in sorted(os.listdir(folder)):
        record = os.path.join(folder, entry, "RECORD")
        if not entry.endswith(".dist-info") or not os.path.exists(record):
            continue
        written = os.stat(record).st_mtime + _GRAIN_S
        with open(record, encoding="utf-8", newline="") as rows:
            for path, wanted, size in csv.reader(rows):
                owned.add(path.partition("/")[0])
                if wanted:
                    fault = _fault(os.path.join(folder, path), wanted, size, written, deep, account)
                    if fault:
                        yield os.path.join(folder, path), fault
    for entry in sorted(os.listdir(folder)):
        if entry not in owned:
            yield os.path.join(folder, entry), "belongs to no package"


def _fault(path: str, wanted: str, size: str, written: float, deep: bool, account: int) -> str:
    try:
        stat = os.stat(path)
    except OSError:
        return "missing"
    if stat.st_uid != account:
        return "another account's"
    if size and stat.st_size != int(size):
        return f"{stat.st_size} bytes instead of {size}"
    if not deep and stat.st_mtime <= written:
        return ""
    name, _, value = wanted.partition("=")
    with open(path, "rb") as content:
        digest = hashlib.file_digest(content, name).digest()
    right = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == value
    return "" if right else "other content"
