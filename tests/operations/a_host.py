"""A host that answers facts from memory, and an operation run against it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pyinfra.api import StringCommand
from pyinfra.context import ctx_host, ctx_state

from lockstep import probes


@dataclass(eq=False)
class Host:
    """Answers facts from a case, and remembers what an operation says."""

    facts: dict[str, Any]
    name: str = "spark1"
    print_prefix: str = ""
    executing_op_hash: str = "the operation"
    logged: list[str] = field(default_factory=list)
    nooped: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def get_fact(self, fact: type, **arguments: Any) -> Any:
        # What pyinfra would send must be a command, whatever the answer is.
        assert fact().command(**arguments)  # type: ignore[attr-defined]
        self.asked.append(fact.__name__)
        return self.facts[fact.__name__]

    def log(self, message: str) -> None:
        self.logged.append(message)

    def noop(self, message: str) -> None:
        self.nooped.append(message)


def shown(command: StringCommand) -> Any:
    """A command as a line; the program that writes files as what it is given."""
    words = shlex.split(command.get_raw_value())
    if probes.source("write_files") in words:
        assert words[:2] == ["/usr/bin/python3", "-c"]
        [text] = command.connector_arguments["_stdin"]
        document = json.loads(text)
        return {key: value for key, value in document.items() if value}
    assert not command.connector_arguments
    return command.get_raw_value()


def run(name: str, host: Host, **kwargs: Any) -> list[Any]:
    """The commands that an operation ("system.packages") asks for."""
    module, _, operation = name.partition(".")
    function = getattr(import_module(f"tasks.operations.{module}"), operation)
    state = SimpleNamespace(
        config=SimpleNamespace(DIFF=False),
        is_executing=True,
        inventory=[host],
        active_hosts={host},
        ops={host: {host.executing_op_hash}},
    )
    with ctx_state.use(state), ctx_host.use(host):
        return [shown(command) for command in function._inner(**kwargs)]
