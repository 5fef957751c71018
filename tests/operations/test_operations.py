"""The effects of operations where something differs: a YAML file per operation, an entry per case.

A second deploy shows that they do nothing on a host that is as it should be (test_whole_deploy).

CASE:
  kwargs: arguments of the operation
  facts: fact → the host's answer
  commands: the commands to run, a line each; a write is shown as its input
  noop: the message of the operation when there is nothing to do
  log: further messages
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from a_host import Host, run

from lockstep.files.managed_file import Folder, ManagedFile
from lockstep.system.tools import Environment

FOLDER = Path(__file__).parent
CASES = [
    pytest.param(path.stem, case, id=f"{path.stem}: {name}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for name, case in yaml.safe_load(path.read_text()).items()
]
CLASSES: dict[str, Any] = {"files": ManagedFile, "folders": Folder}


def with_instances(items: dict[str, Any]) -> dict[str, Any]:
    """The same with files and folders as the operation takes them."""
    lists = {
        key: [cls(**item) for item in items[key]] for key, cls in CLASSES.items() if key in items
    }
    return {**items, **lists}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_operation(name: str, case: dict[str, Any]) -> None:
    host = Host(case.get("facts", {}))
    kwargs = with_instances(case.get("kwargs", {}))
    if environments := kwargs.get("environments"):
        kwargs["environments"] = {key: Environment(*item) for key, item in environments.items()}
    expected_commands = [
        json.loads(json.dumps(with_instances(command), default=asdict))
        if isinstance(command, dict)
        else command
        for command in case.get("commands", [])
    ]
    assert run(name, host, **kwargs) == expected_commands
    assert host.noop_messages == ([case["noop"]] if "noop" in case else [])
    assert host.log_messages == case.get("log", [])
    # A fact is a round trip: one per operation, unless the case says more.
    assert host.round_trips == case.get("round_trips", 1)
    assert bool(expected_commands) != bool(host.noop_messages)
