"""A host that answers facts from memory, and an operation run against it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pyinfra.api import Config, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host, ctx_state

from lockstep.files import sent
from lockstep.tasks.facts import host as facts


@dataclass(eq=False)
class Host:
    """Answers readers from a case, and remembers what it was asked and what an operation says.

    A reader whose answer is None fails.
    """

    facts: dict[str, Any]
    name: str = "spark1"
    print_prefix: str = ""
    executing_op_hash: str = "the operation"
    logged: list[str] = field(default_factory=list)
    nooped: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    round_trips: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    current_deploy_kwargs: None = None

    def __post_init__(self) -> None:
        facts.prepare(self, dict.fromkeys(self.facts))

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> Any:
        # As root, as everything else.
        assert arguments["_sudo"]
        given = json.loads(arguments["_stdin"][0]) if _is_sent(command) else {}
        if given.get("program") != "lockstep.onhost.facts":
            self.ran.append(command.get_raw_value())
            return True, CommandOutput([])
        asked = given["asked"]
        self.asked += asked
        self.round_trips += 1
        found = {name: self.facts[name] for name in asked}
        faults = {name: "as the case says" for name in asked if found[name] is None}
        answers = {name: found[name] for name in asked if name not in faults}
        text = json.dumps({"answers": answers, "facts": {}, "faults": faults})
        return True, CommandOutput([OutputLine("stdout", text)])

    def log(self, message: str) -> None:
        self.logged.append(message)

    def noop(self, message: str) -> None:
        self.nooped.append(message)


def _is_sent(command: StringCommand) -> bool:
    return shlex.split(command.get_raw_value()) == list(sent.COMMAND)


def shown(command: StringCommand) -> Any:
    """A command as a line; the program that writes files as what it is given."""
    if _is_sent(command):
        [text] = command.connector_arguments["_stdin"]
        given = json.loads(text)
        assert given["program"] == "lockstep.onhost.records.write_files"
        document = given["asked"]
        return {key: value for key, value in document.items() if value}
    assert not command.connector_arguments
    return command.get_raw_value()


def run(name: str, host: Host, **kwargs: Any) -> list[Any]:
    """The commands that an operation ("system.packages") asks for."""
    module, _, operation = name.partition(".")
    function = getattr(import_module(f"lockstep.tasks.operations.{module}"), operation)
    with deploying(host):
        return [shown(command) for command in function._inner(**kwargs)]


@contextmanager
def deploying(host: Host) -> Iterator[Any]:
    """Operations run on this host, and their commands are executed by nobody."""
    state = SimpleNamespace(
        print_fact_output=False,
        print_fact_input=False,
        config=Config(SUDO=True),
        is_executing=True,
        inventory=[host],
        active_hosts={host},
        ops={host: {host.executing_op_hash}},
        print_output=False,
        print_input=False,
        fail_hosts=lambda hosts: None,
        get_op_meta=lambda _: SimpleNamespace(names={"Write units"}),
    )
    with ctx_state.use(state), ctx_host.use(host):
        yield state
