"""A host that answers facts from memory, and a way to run an operation against it."""

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

from lockstep.files import remote_exec
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources import RESOURCES
from lockstep.resources.files import KEY
from lockstep.tasks.run import reader_answers as facts

#: Readers that yield facts. A case has these by kind. Those of files and units are derived.
YIELDING = {
    remote_exec.reader_name(about.reader)
    for resource in RESOURCES
    for about in resource.KINDS.values()
} - {"files", "units"}


@dataclass(eq=False)
class Host:
    """Answers readers from a case; records the questions to it and the messages of an operation.

    A reader whose answer is None fails.
    """

    facts: dict[str, Any]
    name: str = "spark1"
    print_prefix: str = ""
    executing_op_hash: str = "the operation"
    log_messages: list[str] = field(default_factory=list)
    noop_messages: list[str] = field(default_factory=list)
    reader_names: list[str] = field(default_factory=list)
    round_trips: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    current_deploy_kwargs: None = None

    def __post_init__(self) -> None:
        facts.set_questions(self, dict.fromkeys(self.facts))
        files = self.facts.get("files")
        for have in files.values() if isinstance(files, dict) else ():
            # A case cannot have them, because each run has another key.
            if have and have["kind"] == "file" and have.get("text") is not None:
                have["seal"] = seal(KEY, have["text"].encode())

    def run_shell_command(self, command: StringCommand, **arguments: Any) -> Any:
        # The operation runs as root, as all operations do.
        assert arguments["_sudo"]
        request = json.loads(arguments["_stdin"][0]) if _is_sent(command) else {}
        if request.get("program") != "lockstep.onhost.facts":
            self.commands.append(command.get_raw_value())
            return True, CommandOutput([])
        readers = request["asked"]
        self.reader_names += readers
        self.round_trips += 1
        known_facts = {name: self.facts[name] for name in readers}
        faults = {name: "as the case says" for name in readers if known_facts[name] is None}
        answers = {name: known_facts[name] for name in readers if name not in faults}
        yielded_facts = [answers.pop(name) for name in YIELDING & set(answers)]
        merged_facts = {
            kind: items for document in yielded_facts for kind, items in document.items()
        }
        text = json.dumps({"answers": answers, "facts": merged_facts, "faults": faults})
        return True, CommandOutput([OutputLine("stdout", text)])

    def log(self, message: str) -> None:
        self.log_messages.append(message)

    def noop(self, message: str) -> None:
        self.noop_messages.append(message)


def _is_sent(command: StringCommand) -> bool:
    return shlex.split(command.get_raw_value()) == list(remote_exec.COMMAND)


def displayed_command(command: StringCommand) -> Any:
    """A command as one line; for a program that reads a document, also that."""
    if _is_sent(command):
        [text] = command.connector_arguments["_stdin"]
        request = json.loads(text)
        assert request["program"] == "lockstep.onhost.records.checked_file_writes"
        document = request["asked"]
        return {key: value for key, value in document.items() if value}
    stdin = command.connector_arguments.get("_stdin")
    if stdin:
        return {command.get_raw_value(): json.loads(stdin[0])}
    assert not command.connector_arguments
    return command.get_raw_value()


def run(name: str, host: Host, **kwargs: Any) -> list[Any]:
    """The commands that an operation ("system.packages") yields."""
    module, _, operation = name.partition(".")
    function = getattr(import_module(f"lockstep.tasks.operations.{module}"), operation)
    with deploying(host):
        return [displayed_command(command) for command in function._inner(**kwargs)]


@contextmanager
def deploying(host: Host) -> Iterator[Any]:
    """Run operations on this host; their commands are collected, not executed."""
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
