"""Two Sparks in memory and deploys to them, by pyinfra's own command."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_spark import HOSTS
from forked_lockstep import lockstep
from forked_pyinfra import pyinfra


def inventory(repository: Path, name: str, *data: Mapping[str, Any], count: int = 2) -> str:
    """Write an inventory of Sparks in memory, with data of all or of each; returns its path.

    The inventory uses the lock of `site`, if it does not name another.
    """
    every = data if len(data) > 1 else (data or ({},)) * count
    hosts = [
        (
            f"@fake/spark{number}",
            {
                "operators": ("spark",),
                "fabric_address": f"10.0.0.{number}",
                "lock": "site.lock.yaml",
                **more,
            },
        )
        for number, more in enumerate(every, 1)
    ]
    path = f"inventories/{name}.py"
    (repository / path).write_text(
        "import fake_spark\n"
        "from lockstep.deploy.checked import checked\n"
        "fake_spark.install()\n"
        f"{name} = checked(__file__, {hosts!r})\n"
    )
    return path


class Site:
    """Sparks in memory; `document` holds their state and the commands that ran on them.

    `result` is the last deploy, `output` what it said without the terminal's line breaks.
    """

    def __init__(
        self, repository: Path, hosts: dict[str, Any], inventory: str = "inventories/site.py"
    ) -> None:
        self.repository = repository
        self.inventory = inventory
        self.document: dict[str, Any] = {"hosts": copy.deepcopy(hosts)}
        self.output = ""
        self.result: subprocess.CompletedProcess[str]
        self._state = repository / "state.json"
        self._path = os.pathsep.join(map(str, (repository, Path(__file__).parent)))

    def again(self) -> Site:
        """The same Sparks as they are now, to be changed."""
        return Site(self.repository, self.document["hosts"], self.inventory)

    def deploy(
        self, *options: str, task: str = "deploy.py", exits: int = 0, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `pyinfra -y INVENTORY TASK`; ``changes`` are faults of the hosts.

        It must end with the code ``exits`` and show no traceback. With `--dry` there is no `-y`,
        because that would hide the changes that pyinfra finds.
        """
        options += () if "--dry" in options else ("-y",)
        argv = (*options, self.inventory, task)
        environment = self._prepare_hosts(changes)
        result = pyinfra(*argv, folder=self.repository, environment=environment, path=self._path)
        return self._judge(result, exits)

    def quiet_deploy(
        self, *options: str, exits: int = 0, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `lockstep deploy -i INVENTORY` without a terminal, so that nobody can be asked."""
        argv = ("deploy", "-i", self.inventory, *options)
        environment = self._prepare_hosts(changes)
        result = lockstep(*argv, folder=self.repository, environment=environment, path=self._path)
        return self._judge(result, exits)

    def _judge(
        self, result: subprocess.CompletedProcess[str], exits: int
    ) -> subprocess.CompletedProcess[str]:
        text = result.stdout + result.stderr
        assert result.returncode == exits, text
        assert "Traceback" not in text, text
        self.document, self.output = json.loads(self._state.read_text()), " ".join(text.split())
        self.result = result
        return result

    def _prepare_hosts(self, changes: Mapping[str, Any]) -> dict[str, str]:
        """Write the state of the hosts, and return the environment of a deploy to them."""
        self._state.write_text(json.dumps({"hosts": self.document["hosts"], **changes}))
        return {
            **os.environ,
            "PYTHONPATH": self._path,
            "FAKE_SPARKS": str(self._state),
            "XDG_STATE_HOME": str(self.repository / "state"),
        }

    def commands(self, host: str = HOSTS[0]) -> list[str]:
        """Every command of the last run on a host; "? NAME ..." is a question to readers."""
        host_commands: list[str] = self.document["ran"][host]
        return host_commands

    def changes(self, host: str = HOSTS[0]) -> list[str]:
        return [line for line in self.commands(host) if not line.startswith("?")]
