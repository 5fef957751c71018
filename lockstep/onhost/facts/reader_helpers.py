"""Helpers of readers: programs and files of the host, keyed hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors
from lockstep.onhost.records import ownership

#: Kind, item, value: one fact by which hosts are compared.
Fact = tuple[str, str, object]
Facts = Iterator[Fact]
LIMIT_S = 60.0  # Seconds; no reader waits longer for a program of the host.


class FactUnreadable(errors.Problem):
    """A part of the host that could not be read; a comparison without it would be a guess."""


def seal(key: str, content: bytes) -> str:
    """Return a keyed hash: the same content gives the same text only with the key of one run."""
    return hmac.new(bytes.fromhex(key), content, hashlib.sha256).hexdigest()[:32]


def seal_file(key: str, path: str) -> str:
    """Return the keyed hash of a file's bytes."""
    with open(path, "rb") as content:
        return seal(key, content.read())


def run(*argv: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a program of the host; a missing or a hanging one ends with code 127."""
    environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return subprocess.CompletedProcess(argv, 127, "", str(fault))


def output_or_raise(*argv: str) -> str:
    """Return the output of a program; raise FactUnreadable if it fails."""
    result = run(*argv)
    if result.returncode != 0:
        reason = (result.stderr or result.stdout).strip()[-200:]
        raise FactUnreadable(f"{argv[0]} ended with {result.returncode}: {reason}")
    return result.stdout


def text(path: str) -> str | None:
    """Return a small text file without white space around it; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as content:
            return content.read().strip()
    except OSError:
        return None


def lines_of_file(path: str) -> list[str]:
    """Return the lines of a small text file; [] if it cannot be read."""
    return (text(path) or "").splitlines()


def pairs(path: str) -> list[tuple[str, str]]:
    """Return key and value of each KEY="value" line of a small text file."""
    fields = (line.strip().partition("=") for line in lines_of_file(path))
    return [(key, value.strip("\"'")) for key, mark, value in fields if mark]


def document(path: str) -> Any:
    """Return a JSON file's document; None if there is none that can be read."""
    try:
        return json.loads(text(path) or "")
    except ValueError:
        return None


def digest(path: str) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        with open(path, "rb") as content:
            return hashlib.sha256(content.read()).hexdigest()
    except OSError:
        return None


def folder_paths(folder: str) -> list[str]:
    """Return the full paths of a folder's entries, sorted; [] without a folder."""
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []


def paths_below(folder: str) -> list[str]:
    """Return the full paths of all files and links under a folder, or the file itself; or []."""
    if os.path.isfile(folder):
        return [folder]
    paths = []
    for root, _, names in os.walk(folder):
        paths += [os.path.join(root, name) for name in names]
    return sorted(paths)


def marked_files(folder: str) -> list[str]:
    """Return the full paths of the files under a folder that a deploy wrote, by their mark."""
    paths = paths_below(folder)
    return [path for path in paths if not os.path.islink(path) and ownership.is_marked(Path(path))]


def mode(entry: os.stat_result) -> str:
    """Return a file's mode, as "0644"."""
    return f"{stat.S_IMODE(entry.st_mode):04o}"


def mode_and_owner(entry: os.stat_result) -> str:
    """Return a file's mode and owner, as "0644 root:root"."""
    return f"{mode(entry)} {':'.join(ownership.user_and_group_names(entry))}"
