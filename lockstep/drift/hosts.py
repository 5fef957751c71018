"""Snapshots of several hosts at once, each by one command over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lockstep import snapshot
from lockstep.login import NO_CONNECTION, Login

# A snapshot takes a second; one that reads all weights, as long as the disk needs.
LIMIT_S, DEEP_LIMIT_S = 120.0, 3600.0


@dataclass(frozen=True)
class Taken:
    """One host's snapshot, or why there is none.

    Attributes:
        host: The host.
        snapshot: As `lockstep.snapshot.snapshot.take` answers it, None without an answer.
        fault: Why there is none, with the remedy; "".
        offset: Seconds that its clock is ahead, and the most that this may be wrong by.
    """

    host: str
    snapshot: dict[str, Any] | None = None
    fault: str = ""
    offset: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Asked:
    """What one host is asked, by which program, and how it is reached.

    `password` is for sudo, where it needs one.
    """

    login: Login
    question: dict[str, Any] = field(repr=False)
    program: str = "snapshot"
    sudo: bool = True
    password: str | None = field(default=None, repr=False)


Ask = Callable[[Asked], Taken]


def take_all(asked: Sequence[Asked], ask: Ask | None = None) -> list[Taken]:
    """One snapshot of each host, all at once, in the order given.

    Args:
        asked: The hosts.
        ask: What asks one host; another one than ssh is for tests and benchmarks.
    """
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        return list(pool.map(ask or over_ssh, asked))


def over_ssh(asked: Asked) -> Taken:
    """The snapshot of one host, by one command that leaves nothing there."""
    text = snapshot.document(asked.question, asked.program)
    sudo = ["sudo", "-n"]
    if asked.sudo and asked.password is not None:
        # Read from standard input's first line; where sudo needs none, the program skips that.
        sudo, text = ["sudo", "-S", "-p", ""], f"{asked.password}\n{text}"
    words = asked.login.command([*(sudo if asked.sudo else []), *snapshot.COMMAND])
    if words[0] == "ssh":
        words[1:1] = ["-o", "Compression=yes"]
    before = time.time()
    try:
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEEP_LIMIT_S if asked.question["deep"] else LIMIT_S,
            check=False,
            env=os.environ,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return Taken(asked.login.name, fault=f"no answer: {fault.__class__.__name__}")
    after = time.time()
    return read(asked.login, done.returncode, done.stdout, done.stderr, (before, after))


def read(login: Login, code: int, out: str, err: str, between: tuple[float, float]) -> Taken:
    """What one host answered, or why its answer is none."""
    said = " ".join(err.split())[-300:]
    if login.words and code == NO_CONNECTION:
        return Taken(login.name, fault=f"no connection: {said}")
    if "sudo:" in said and code != 0:
        remedy = "Give --ask-sudo-password, or let the account use sudo without one."
        return Taken(login.name, fault=f"no right to read it: {said}. {remedy}")
    try:
        found = json.loads(out)
        if code != 0 or not {"facts", "faults", "unknown", "records"} <= set(found):
            raise ValueError(f"it ended with {code}")
    except (ValueError, TypeError) as fault:
        return Taken(login.name, fault=f"its answer is no snapshot: {said or fault}")
    return Taken(login.name, found, offset=_offset(found["records"], between))


def _offset(records: Mapping[str, Any], between: tuple[float, float]) -> tuple[float, float]:
    middle, half = sum(between) / 2, (between[1] - between[0]) / 2
    return float(records.get("time", middle)) - middle, half
