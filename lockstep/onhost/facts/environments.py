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

from lockstep.onhost.facts.reader_helpers import LIMIT_S, Facts, FactUnreadable, document, run

RECORDS = "/var/cache/lockstep/images"
# Files that uv puts into a venv besides the packages.
_OF_UV = {"__pycache__", "_virtualenv.py", "_virtualenv.pth"}
# An installation writes its record last, within the precision of the clock, seconds.
_GRAIN_S = 2.0
_NAMED = 3
# Files that an editable installation writes into its checkout.
_BUILT = (":(exclude)build", ":(exclude,glob)**/*.egg-info/**")


def read(question: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the venv engine, and the check records of images.

    Args:
        question: {"home", "current", "images": {name: digest}}.

    Returns:
        "environment" under "home" (`installed_packages`), "commits" of its source trees, whether an
        installation is "unfinished", the record of its "check", the target of the link "current",
        and the record of each of "images".
    """
    home, current = question["home"], question["current"]
    return {
        "environment": installed_packages(os.path.join(home, "venv")),
        "commits": {name: _commit(os.path.join(home, name)) for name in ("vllm", "transformers")},
        "unfinished": _is_unfinished(os.path.join(home, "unfinished")),
        "check": document(os.path.join(home, "check.json")),
        "current": os.readlink(current) if os.path.islink(current) else None,
        "images": {
            name: document(os.path.join(RECORDS, digest.replace(":", "-") + ".json"))
            for name, digest in question.get("images", {}).items()
        },
    }


def package_versions_by_venv(venvs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the versions of installed packages by name, for each venv.

    A venv whose installation was not seen to end counts as empty.
    """
    return {
        venv: {}
        if os.path.exists(os.path.join(venv, "unfinished"))
        else installed_packages(venv)["distributions"]
        for venv in venvs
    }


def installed_packages(venv: str) -> dict[str, Any]:
    """Return a venv's "python" version, "distributions", "origins" of those from no index."""
    python, folder = _site_packages(venv)
    distributions: dict[str, str] = {}
    origins: dict[str, Any] = {}
    for entry in _metadata_folders(folder):
        name, _, version = os.path.basename(entry).removesuffix(".dist-info").partition("-")
        name = name.lower().replace("_", "-").replace(".", "-")
        # A package that is there twice has no version that anybody could rely on.
        distributions[name] = (
            f"{distributions[name]} and {version}" if name in distributions else version
        )
        origin = document(os.path.join(entry, "direct_url.json"))
        if origin:
            editable = bool((origin.get("dir_info") or {}).get("editable"))
            origins[name] = {"url": origin.get("url"), "editable": editable}
    return {"python": python, "distributions": distributions, "origins": origins}


def _site_packages(venv: str) -> tuple[str | None, str]:
    lib = os.path.join(venv, "lib")
    for python in sorted(os.listdir(lib)) if os.path.isdir(lib) else []:
        folder = os.path.join(lib, python, "site-packages")
        if os.path.isdir(folder):
            return python.removeprefix("python"), folder
    return None, ""


def _metadata_folders(folder: str) -> list[str]:
    """Return metadata folders; an installation that was cut off leaves one without RECORD."""
    return [
        os.path.join(folder, entry)
        for entry in sorted(os.listdir(folder) if folder else [])
        if entry.endswith(".dist-info") and os.path.exists(os.path.join(folder, entry, "RECORD"))
    ]


def _commit(source: str) -> str | None:
    if not os.path.isdir(source):
        return None
    result = run("git", "-c", f"safe.directory={source}", "-C", source, "rev-parse", "HEAD")
    return result.stdout.strip() if result.returncode == 0 else None


def _is_unfinished(mark: str) -> bool:
    """Tell whether an installation was cut off: it left its mark, and nobody holds its lock."""
    try:
        with open(mark, encoding="utf-8") as mark_file:
            fcntl.flock(mark_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def checkout_changes(question: dict[str, Any]) -> Facts:
    """Yield whether source trees ("sources") have changes of their own."""
    for source in question["sources"]:
        if os.path.exists(os.path.join(source, ".git")):
            yield "checkout", source, _checkout_changes_text(source)


def _checkout_changes_text(source: str) -> str:
    """Describe a checkout's changes.

    Git runs as the checkout's owner, because a repository's configuration may run programs.
    """
    entry = os.stat(source)
    try:
        result = subprocess.run(
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
        raise FactUnreadable(f"git status of {source}: {fault}") from fault
    if result.returncode != 0:
        raise FactUnreadable(f"git status of {source}: {result.stderr.strip()[-200:]}")
    changed_files = [line[3:] for line in result.stdout.splitlines()]
    if not changed_files:
        return "clean"
    more = f" and {len(changed_files) - _NAMED} more" if len(changed_files) > _NAMED else ""
    return f"changed: {', '.join(changed_files[:_NAMED])}{more}"


def packages_and_changed_files(question: dict[str, Any]) -> Facts:
    """Yield distributions of each venv, and files that differ from the installed ones.

    `question` has "venvs" by name, of which "engine" is the engine's, and "deep": whether every
    file is read.
    """
    for name, venv in question["venvs"].items():
        packages = installed_packages(venv)
        if packages["python"] is None:
            continue
        if name != "engine":
            yield "tools", f"{name} python", packages["python"]
        for package, version in packages["distributions"].items():
            if name == "engine":
                yield "engine package", package, version
            else:
                yield "tools package", f"{name} {package}", version
        _, folder = _site_packages(venv)
        for path, fault in _faults(folder, question["deep"]):
            yield "changed package file", path, fault


def _faults(folder: str, deep: bool) -> Iterator[tuple[str, str]]:
    """Yield (path, fault) of installed files that are missing or changed, and of foreign files."""
    owned_paths = set(_OF_UV)
    account = os.stat(folder).st_uid
    for entry in _metadata_folders(folder):
        record = os.path.join(entry, "RECORD")
        write_time = os.stat(record).st_mtime + _GRAIN_S
        with open(record, encoding="utf-8", newline="") as rows:
            for path, wanted_hash, size in csv.reader(rows):
                owned_paths.add(path.partition("/")[0])
                if wanted_hash:
                    fault = _file_fault(
                        os.path.join(folder, path), wanted_hash, size, write_time, deep, account
                    )
                    if fault:
                        yield os.path.join(folder, path), fault
    for name in sorted(os.listdir(folder)):
        if name not in owned_paths:
            yield os.path.join(folder, name), "belongs to no package"


def _file_fault(
    path: str, wanted_hash: str, size: str, write_time: float, deep: bool, account: int
) -> str:
    try:
        stat = os.stat(path)
    except OSError:
        return "missing"
    if stat.st_uid != account:
        return "another account's"
    if size and stat.st_size != int(size):
        return f"{stat.st_size} bytes instead of {size}"
    if not deep and stat.st_mtime <= write_time:
        return ""
    name, _, value = wanted_hash.partition("=")
    with open(path, "rb") as content:
        digest = hashlib.file_digest(content, name).digest()
    right = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == value
    return "" if right else "other content"
