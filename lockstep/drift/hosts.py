"""Snapshots of several hosts at once, each by one command over ssh."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.files import remote_exec
from lockstep.fleet import hosts
from lockstep.fleet.login import Login

# Seconds. A snapshot takes one; a snapshot that reads all weights takes as long as the disk needs.
LIMIT_S, DEEP_LIMIT_S = 120.0, 3600.0
_LEAVE_LIMIT_S = 30.0
_SUDO = "Give --ask-sudo-password, or let the account use sudo without one."


@dataclass(frozen=True)
class HostSnapshot:
    """One host's snapshot, or the reason why it has none.

    Attributes:
        host: The host.
        snapshot: The answer of `lockstep.onhost.facts.answer_request`, None without an answer.
        fault: The reason for no answer, with the remedy, or "".
        offset: Seconds that its clock is ahead, and the largest error of this figure.
    """

    host: str
    snapshot: dict[str, Any] | None = None
    fault: str = ""
    offset: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class HostQuestion:
    """The questions to one host, and the way to reach it.

    Attributes:
        login: The host.
        questions: The questions by name of the reader.
        sudo: True to ask as root.
        password: For sudo, if it needs one.
        limit_s: Seconds after which the host is given up.
    """

    login: Login
    questions: dict[str, Any] = field(repr=False)
    sudo: bool = True
    password: str | None = field(default=None, repr=False)
    limit_s: float = LIMIT_S


Ask = Callable[[HostQuestion], HostSnapshot]


def take_all(host_questions: Sequence[HostQuestion], ask: Ask | None = None) -> list[HostSnapshot]:
    """Take one snapshot of each host, all at once, in the order given.

    Another `ask` than ssh is for tests and benchmarks.
    """
    return hosts.at_once(ask or over_ssh, host_questions)


def over_ssh(host_question: HostQuestion) -> HostSnapshot:
    """Take the snapshot of one host, by one command that leaves nothing there."""
    start_time = time.time()
    answer = _answer(host_question, remote_exec.readers_input(host_question.questions))
    return read(host_question.login.name, answer, (start_time, time.time()))


def leave(host_question: HostQuestion, report_document: dict[str, Any]) -> None:
    """Leave the diff's part about a host on that host, whose page shows it with its age.

    A failure is not reported here, because the host has answered the diff itself.
    """
    document = remote_exec.program_input("records.last_diff", report_document)
    _answer(replace(host_question, limit_s=_LEAVE_LIMIT_S), document)


def _answer(host_question: HostQuestion, text: str) -> hosts.HostAnswer:
    """Run the program on one host from standard input; return its answer."""
    sudo = ["sudo", "-n"]
    if host_question.sudo and host_question.password is not None:
        # sudo reads the first line of standard input. If sudo needs no password, the program skips
        # that line.
        sudo, text = ["sudo", "-S", "-p", ""], f"{host_question.password}\n{text}"
    words = [*(sudo if host_question.sudo else []), *remote_exec.COMMAND]
    where = host_question.login.with_compression()
    return hosts.ask(where, words, text=text, limit_s=host_question.limit_s, sudo_remedy=_SUDO)


def read(name: str, answer: hosts.HostAnswer, between: tuple[float, float]) -> HostSnapshot:
    """Return the snapshot in one host's answer, or the reason why it holds none."""
    if answer.fault:
        return HostSnapshot(name, fault=answer.fault)
    document, _ = answer.json()
    parts = {"answers", "facts", "faults"}
    if answer.code != 0 or not isinstance(document, dict) or not parts <= set(document):
        return HostSnapshot(name, fault=f"its answer is no snapshot: {answer.error_text}")
    middle, half = sum(between) / 2, (between[1] - between[0]) / 2
    host_time = document["facts"].get("clock now", {}).get("seconds", middle)
    return HostSnapshot(name, document, offset=(float(host_time) - middle, half))
