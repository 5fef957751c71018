"""Snapshots of several hosts at once, each by one command over ssh."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.files import sent
from lockstep.fleet import hosts
from lockstep.fleet.login import Login

# A snapshot takes a second; one that reads all weights, as long as the disk needs.
LIMIT_S, DEEP_LIMIT_S = 120.0, 3600.0
_LEAVE_LIMIT_S = 30.0
_SUDO = "Give --ask-sudo-password, or let the account use sudo without one."


@dataclass(frozen=True)
class Taken:
    """One host's snapshot, or why there is none.

    Attributes:
        host: The host.
        snapshot: As `lockstep.onhost.facts.take` answers, None without an answer.
        fault: Why there is none, with the remedy; "".
        offset: Seconds that its clock is ahead, and the most that this may be wrong by.
    """

    host: str
    snapshot: dict[str, Any] | None = None
    fault: str = ""
    offset: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Asked:
    """What one host is asked, and how it is reached.

    Attributes:
        login: The host.
        questions: Name of a reader → question.
        sudo: Whether root asks.
        password: For sudo, where it needs one.
        limit_s: Seconds after which it is given up.
    """

    login: Login
    questions: dict[str, Any] = field(repr=False)
    sudo: bool = True
    password: str | None = field(default=None, repr=False)
    limit_s: float = LIMIT_S


Ask = Callable[[Asked], Taken]


def take_all(asked: Sequence[Asked], ask: Ask | None = None) -> list[Taken]:
    """One snapshot of each host, all at once, in the order given.

    Another `ask` than ssh is for tests and benchmarks.
    """
    return hosts.at_once(ask or over_ssh, asked)


def over_ssh(asked: Asked) -> Taken:
    """The snapshot of one host, by one command that leaves nothing there."""
    before = time.time()
    found = _answer(asked, sent.questions(asked.questions))
    return read(asked.login.name, found, (before, time.time()))


def leave(asked: Asked, said: dict[str, Any]) -> None:
    """Leave on a host what the diff says of it, for its page, which shows how old that is.

    A host that cannot keep it is not told here: it has answered the diff itself.
    """
    document = sent.document("records.last_diff", said)
    _answer(replace(asked, limit_s=_LEAVE_LIMIT_S), document)


def _answer(asked: Asked, text: str) -> hosts.Answer:
    """What the program answers that one host runs from standard input."""
    sudo = ["sudo", "-n"]
    if asked.sudo and asked.password is not None:
        # Read from standard input's first line; where sudo needs none, the program skips that.
        sudo, text = ["sudo", "-S", "-p", ""], f"{asked.password}\n{text}"
    words = [*(sudo if asked.sudo else []), *sent.COMMAND]
    where = asked.login.compressed()
    return hosts.ask(where, words, text=text, limit_s=asked.limit_s, sudo_remedy=_SUDO)


def read(name: str, answer: hosts.Answer, between: tuple[float, float]) -> Taken:
    """What one host answered, or why its answer is none."""
    if answer.fault:
        return Taken(name, fault=answer.fault)
    found, _ = answer.json()
    parts = {"answers", "facts", "faults"}
    if answer.code != 0 or not isinstance(found, dict) or not parts <= set(found):
        return Taken(name, fault=f"its answer is no snapshot: {answer.said}")
    middle, half = sum(between) / 2, (between[1] - between[0]) / 2
    theirs = found["facts"].get("clock now", {}).get("seconds", middle)
    return Taken(name, found, offset=(float(theirs) - middle, half))
