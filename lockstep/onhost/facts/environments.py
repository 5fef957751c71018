"""Python environments: the engine's and the tools', package by package and file by file."""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

from lockstep.onhost.facts.reading import LIMIT_S, Facts, Unreadable, document, run

RECORDS = "/var/cache/lockstep/images"
# What uv puts into a venv beside what it installs.
_OF_UV = {"__pycache__", "_virtualenv.py", "_virtualenv.pth"}
# An installation writes its record last, give or take the clock's grain, seconds.
_GRAIN_S = 2.0
_NAMED = 3
# What an editable installation writes into its checkout.
_BUILT = (":(exclude)build", ":(exclude,glob)**/*.egg-info/**")


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """The venv engine: "environment" of the generation under "home" (`installed`), "commits" of its
    source trees, whether an installation is "unfinished", the record of its "check", where the link
    "current" leads. And the record of each of "images". Asked: {"home", "current", "images": {name:
    digest}}.
    """
    home, current = asked["home"], asked["current"]
    return {
        "environment": installed(os.path.join(home, "venv")),
        "commits": {name: _commit(os.path.join(home, name)) for name in ("vllm", "transformers")},
        "unfinished": _unfinished(os.path.join(home, "unfinished")),
        "check": document(os.path.join(home, "check.json")),
        "current": os.readlink(current) if os.path.islink(current) else None,
        "images": {
            name: document(os.path.join(RECORDS, digest.replace(":", "-") + ".json"))
            for name, digest in asked.get("images", {}).items()
        },
    }


def tools(venvs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Venv → name → version of what is installed there.

    A venv whose installation was not seen to its end counts as empty.
    """
    return {
        venv: {}
        if os.path.exists(os.path.join(venv, "unfinished"))
        else installed(venv)["distributions"]
        for venv in venvs
    }


def installed(venv: str) -> dict[str, Any]:
    """Version of its "python", "distributions", and "origins" of what is from no index."""
    python, folder = _site_packages(venv)
    found: dict[str, str] = {}
    origins: dict[str, Any] = {}
    for entry in _metadata(folder):
        name, _, version = os.path.basename(entry).removesuffix(".dist-info").partition("-")
        name = name.lower().replace("_", "-").replace(".", "-")
        # What stands there twice has no version that anybody could rely on.
        found[name] = f"{found[name]} and {version}" if name in found else version
        origin = document(os.path.join(entry, "direct_url.json"))
        if origin:
            editable = bool((origin.get("dir_info") or {}).get("editable"))
            origins[name] = {"url": origin.get("url"), "editable": editable}
    return {"python": python, "distributions": found, "origins": origins}


def _site_packages(venv: str) -> tuple[str | None, str]:
    lib = os.path.join(venv, "lib")
    for python in sorted(os.listdir(lib)) if os.path.isdir(lib) else []:
        folder = os.path.join(lib, python, "site-packages")
        if os.path.isdir(folder):
            return python.removeprefix("python"), folder
    return None, ""


def _metadata(folder: str) -> list[str]:
    """Metadata folders; an install that was cut off leaves one without RECORD."""
    return [
        os.path.join(folder, entry)
        for entry in sorted(os.listdir(folder) if folder else [])
        if entry.endswith(".dist-info") and os.path.exists(os.path.join(folder, entry, "RECORD"))
    ]


def _commit(source: str) -> str | None:
    if not os.path.isdir(source):
        return None
    done = run("git", "-c", f"safe.directory={source}", "-C", source, "rev-parse", "HEAD")
    return done.stdout.strip() if done.returncode == 0 else None


def _unfinished(mark: str) -> bool:
    """Whether an installation was cut off: it left its mark, and nobody holds the lock on it."""
    try:
        with open(mark, encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def checkouts(asked: dict[str, Any]) -> Facts:
    """Whether source trees ("sources") have changes of their own."""
    for source in asked["sources"]:
        if os.path.exists(os.path.join(source, ".git")):
            yield "checkout", source, _checkout(source)


def _checkout(source: str) -> str:
    """Git runs as the checkout's owner: what a repository configures may run programs."""
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


def every(asked: dict[str, Any]) -> Facts:
    """Distributions of each venv, and files that are not as they were installed. Asked: "venvs" by
    name, of which "engine" is the engine's; whether every file is read ("deep").
    """
    for name, venv in asked["venvs"].items():
        found = installed(venv)
        if found["python"] is None:
            continue
        if name != "engine":
            yield "tools", f"{name} python", found["python"]
        for package, version in found["distributions"].items():
            if name == "engine":
                yield "engine package", package, version
            else:
                yield "tools package", f"{name} {package}", version
        _, folder = _site_packages(venv)
        for path, fault in _faults(folder, asked["deep"]):
            yield "changed package file", path, fault


def _faults(folder: str, deep: bool) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of installed files that are missing or changed, and of strangers."""
    owned = set(_OF_UV)
    account = os.stat(folder).st_uid
    for entry in _metadata(folder):
        record = os.path.join(entry, "RECORD")
        written = os.stat(record).st_mtime + _GRAIN_S
        with open(record, encoding="utf-8", newline="") as rows:
            for path, wanted, size in csv.reader(rows):
                owned.add(path.partition("/")[0])
                if wanted:
                    fault = _fault(os.path.join(folder, path), wanted, size, written, deep, account)
                    if fault:
                        yield os.path.join(folder, path), fault
    for name in sorted(os.listdir(folder)):
        if name not in owned:
            yield os.path.join(folder, name), "belongs to no package"


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
