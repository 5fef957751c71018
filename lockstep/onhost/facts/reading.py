"""What readers share: programs and files of the host, keyed hashes, systemd's words."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from typing import Any

from lockstep.onhost.core import errors
from lockstep.onhost.records import ours

#: Kind, item, value: one fact that hosts are compared by.
Fact = tuple[str, str, object]
Facts = Iterator[Fact]
LIMIT_S = 60.0  # No reader waits longer for a program of the host, seconds.


class Unreadable(errors.Problem):
    """A part of the host could not be read; what was compared without it would be a guess."""


def seal(key: str, content: bytes) -> str:
    """A keyed hash: the same content gives the same text only with the key of one run."""
    return hmac.new(bytes.fromhex(key), content, hashlib.sha256).hexdigest()[:32]


def seal_file(key: str, path: str) -> str:
    """The keyed hash of a file's bytes."""
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


def output(*argv: str) -> str:
    """What a program prints. Unreadable where it fails."""
    done = run(*argv)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-200:]
        raise Unreadable(f"{argv[0]} ended with {done.returncode}: {said}")
    return done.stdout


def states(shown: str) -> dict[str, dict[str, str]]:
    """Unit → property → value, of what `systemctl show` prints with Id among the properties."""
    found = {}
    for block in shown.strip().split("\n\n"):
        state: dict[str, str] = {}
        for line in block.splitlines():
            key, _, value = line.partition("=")
            # EnvironmentFiles comes once per file.
            state[key] = f"{state[key]}\n{value}" if key in state else value
        found[state.get("Id", "")] = state
    found.pop("", None)
    return found


def text(path: str) -> str | None:
    """A small text file without white space around it; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as content:
            return content.read().strip()
    except OSError:
        return None


def rows(path: str) -> list[str]:
    """Lines of a small text file; [] where it cannot be read."""
    return (text(path) or "").splitlines()


def pairs(path: str) -> list[tuple[str, str]]:
    """Key and value of each KEY="value" line of a small text file."""
    found = (line.strip().partition("=") for line in rows(path))
    return [(key, value.strip("\"'")) for key, mark, value in found if mark]


def document(path: str) -> Any:
    """A JSON file; None where there is none that can be read."""
    try:
        return json.loads(text(path) or "")
    except ValueError:
        return None


def digest(path: str) -> str | None:
    """SHA-256 of a file; None where it cannot be read."""
    try:
        with open(path, "rb") as content:
            return hashlib.sha256(content.read()).hexdigest()
    except OSError:
        return None


def listed(folder: str) -> list[str]:
    """Full paths of what is in a folder, sorted; [] without one."""
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []


def below(folder: str) -> list[str]:
    """Full paths of all files and links under a folder, or the file itself; [] without one."""
    if os.path.isfile(folder):
        return [folder]
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names]
    return sorted(found)


def mode(entry: os.stat_result) -> str:
    """ "0644" of a file."""
    return f"{stat.S_IMODE(entry.st_mode):04o}"


def owner(entry: os.stat_result) -> str:
    """ "0644 root:root" of a file."""
    return f"{mode(entry)} {':'.join(ours.owners(entry))}"
