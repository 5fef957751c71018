"""What operations do where something differs: one YAML file per operation, one entry per case.

That they do nothing on a host that is as it should be, a second deploy shows (test_whole_deploy).

CASE:
  kwargs: arguments of the operation
  facts: fact → what the host answers
  commands: what must be run, as one line each; a write is shown as what goes to its input
  noop: what the operation says when there is nothing to do
  log: what it says besides
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from a_host import Host, run

from lockstep.files.managed_file import ManagedFile
from lockstep.files.tree import Folder
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
        yield name, value if plain else [_built(CLASSES[name], item) for item in value]


def _built(cls: type, values: dict[str, Any]) -> Any:
    return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})


@pytest.mark.parametrize(("name", "case"), CASES)
def test_operation(name: str, case: dict[str, Any]) -> None:
    host = Host(case.get("facts", {}))
    commands = run(name, host, **dict(arguments(case.get("kwargs", {}))))
    expected = [
        {
            **command,
            **{
                key: [asdict(_built(CLASSES[key], item)) for item in command[key]]
                for key in ("files", "folders")
                if key in command
            },
        }
        if isinstance(command, dict)
        else command
        for command in case.get("commands", [])
    ]
    assert commands == expected
    assert host.nooped == ([case["noop"]] if "noop" in case else [])
    assert host.logged == case.get("log", [])
    # A fact is a round trip: one per operation, unless the case says more.
    assert host.round_trips == case.get("round_trips", 1)
    assert bool(commands) != bool(host.nooped)
