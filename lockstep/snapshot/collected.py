"""What the readers of a snapshot share: the question, what was found, and keyed hashes."""

from __future__ import annotations

import grp
import hashlib
import hmac
import os
import pwd
import stat
import subprocess
from dataclasses import dataclass, field
from typing import Any

# No reader waits longer for a program of the host, seconds.
LIMIT_S = 60.0


class Unreadable(Exception):
    """A part of the host could not be read; what was compared without it would be a guess."""


@dataclass
class Collected:
    """Facts as they are found.

    Attributes:
        asked: The question: what the inventory names.
        facts: Kind → item → value, all text.
        faults: Part of the snapshot → why it could not be read.
        records: What engines said about themselves, as the deploy's own probe answers it.
    """

    asked: dict[str, Any]
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)

    def put(self, kind: str, item: str, value: object) -> None:
        """Note one fact."""
        self.facts.setdefault(kind, {})[item] = str(value)

    def seal(self, content: bytes) -> str:
        """A keyed hash: the same content gives the same text only within one run of `diff`."""
        key = bytes.fromhex(self.asked["key"])
        return hmac.new(key, content, hashlib.sha256).hexdigest()[:32]

    def seal_file(self, path: str) -> str:
        """The keyed hash of a file's bytes."""
        with open(path, "rb") as content:
            return self.seal(content.read())


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


def text(path: str) -> str | None:
    """A small text file without white space around it; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as content:
            return content.read().strip()
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


def owner(entry: os.stat_result) -> str:
    """ "0644 root:root" of a file."""
    try:
        user = pwd.getpwuid(entry.st_uid).pw_name
    except KeyError:
        user = str(entry.st_uid)
    try:
        group = grp.getgrgid(entry.st_gid).gr_name
    except KeyError:
        group = str(entry.st_gid)
    return f"{stat.S_IMODE(entry.st_mode):04o} {user}:{group}"
