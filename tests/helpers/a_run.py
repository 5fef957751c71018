"""A deploy as `lockstep deploy` hears it: a program that prints the messages of a recorded run."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep.deploy import events
from lockstep.deploy.course import Course
from lockstep.deploy.plain import Plain
from lockstep.deploy.summary import HostOutcome

#: A program that prints the messages of its JSON argument, and obeys the commands among them.
_PROGRAM = """\
import json, os, signal, sys, time

def ended(*_):
    print("Exiting upon user request!", flush=True)
    sys.exit(0)

signal.signal(signal.SIGINT, ended)
assert os.environ["LOCKSTEP_EVENTS"]
for said in json.loads(sys.argv[1]):
    if isinstance(said, dict):
        print("lockstep deploy: " + json.dumps(said), flush=True)
        if said["event"] in ("Ready", "Asks"):
            print("answered", sys.stdin.readline().strip(), flush=True)
    elif isinstance(said, int):
        sys.exit(said)
    elif said == "SLEEP":
        time.sleep(0.6)
    elif said == "WAIT":
        signal.pause()
    elif said == "DEAF":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    elif said == "LEAVE A CHILD":
        os.fork() or time.sleep(600)
    else:
        print(said, flush=True)
"""


def argv(folder: Path, messages: Sequence[Any]) -> list[str]:
    """The command line of a deploy that prints these messages.

    A message is an event, a line, or a number: the exit code.
    """
    program = folder / "deploys.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    encoded_messages = [
        message
        if isinstance(message, str | int)
        else json.loads(events.line(message).partition(": ")[2])
        for message in messages
    ]
    return [sys.executable, str(program), json.dumps(encoded_messages)]


def good(name: str, hot: Sequence[str] = (), **more: Any) -> HostOutcome:
    """The outcome of a host whose deploy is done."""
    snapshot = {
        "rows": [],
        "ssh": f"ssh spark@{name}",
        "switch": "/data/scripts/llm/switch.sh",
        "serves": ["qwen", "mistral"],
        "hot": list(hot),
        "page": "https://10.0.0.11:8443",
        "chat": None,
        **more,
    }
    return HostOutcome(name, generation="new", restarts=[], snapshot=snapshot)


def step(
    name: str, changed_hosts: Sequence[str] = (), failed_hosts: Sequence[str] = ()
) -> list[events.Event]:
    """The events of an operation from its begin to its end."""
    return [events.StepProgress(name), events.OperationDone(name, changed_hosts, failed_hosts)]


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(lines: list[str], clock: Callable[[], float]) -> Plain:
    """The printer of a run whose lines are collected in a list."""
    course = Course(clock())
    return Plain(
        course, lines.append, agree=lambda finding: True, password=lambda prompt: None, clock=clock
    )
