"""The effects of operations where something differs: a YAML file per operation, an entry per case.

A second deploy shows that they do nothing on a host that is as it should be (test_whole_deploy).

CASE:
  kwargs: arguments of the operation
  facts: fact → the host's answer
  commands: the commands to run, a line each; a write is shown as its input
  noop: the message of the operation when there is nothing to do
  log: further messages
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from a_host import Host, run

from lockstep.files.managed_file import Folder, ManagedFile
from lockstep.system.accounts import Account
from lockstep.system.tools import Environment

FOLDER = Path(__file__).parent
CASES = [
    pytest.param(path.stem, case, id=f"{path.stem}: {name}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for name, case in yaml.safe_load(path.read_text()).items()
]
# Arguments that are dataclasses, by the operation's own names for them.
CLASSES = {"users": Account, "files": ManagedFile, "folders": Folder}


def arguments(kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in kwargs.items():
        if name == "environments":
            yield name, {key: Environment(*item) for key, item in value.items()}
            continue
        plain = name not in CLASSES or not isinstance(value, list)
        yield name, value if plain else [_instance(CLASSES[name], item) for item in value]


def _instance(cls: type, values: dict[str, Any]) -> Any:
    return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})


@pytest.mark.parametrize(("name", "case"), CASES)
def test_operation(name: str, case: dict[str, Any]) -> None:
    host = Host(case.get("facts", {}))
    commands = run(name, host, **dict(arguments(case.get("kwargs", {}))))
    expected_commands = [
        {
            **command,
            **{
                key: [asdict(_instance(CLASSES[key], item)) for item in command[key]]
                for key in ("files", "folders")
                if key in command
            },
        }
        if isinstance(command, dict)
        else command
        for command in case.get("commands", [])
    ]
    assert commands == expected_commands
    assert host.noop_messages == ([case["noop"]] if "noop" in case else [])
    assert host.log_messages == case.get("log", [])
    # A fact is a round trip: one per operation, unless the case says more.
    assert host.round_trips == case.get("round_trips", 1)
    assert bool(commands) != bool(host.noop_messages)
