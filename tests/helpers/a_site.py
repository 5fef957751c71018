"""Two Sparks in memory and deploys to them, by pyinfra's own command."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_spark import HOSTS
from forked_lockstep import lockstep
from forked_pyinfra import pyinfra


def inventory(repository: Path, name: str, *data: Mapping[str, Any], count: int = 2) -> str:
    """Write an inventory of Sparks in memory, with data of all or of each; its path.

    It has the lock of `site`, if it does not name another.
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
    """Sparks; `document` is everything on them and what was run there."""

    def __init__(
        self, repository: Path, hosts: dict[str, Any], inventory: str = "inventories/site.py"
    ) -> None:
        self.repository = repository
        self.inventory = inventory
        self.document: dict[str, Any] = {"hosts": copy.deepcopy(hosts)}
        self._state = repository / "state.json"
        self._path = os.pathsep.join(map(str, (repository, Path(__file__).parent)))

    def deploy(
        self, *options: str, task: str = "deploy.py", **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """`pyinfra -y INVENTORY TASK`; ``changes`` are faults of the hosts.

        With `--dry` and without `-y`, which would leave out what pyinfra finds to change.
        """
        options += () if "--dry" in options else ("-y",)
        argv = (*options, self.inventory, task)
        environment = self._before(changes)
        done = pyinfra(*argv, folder=self.repository, environment=environment, path=self._path)
        self.document = json.loads(self._state.read_text())
        return done

    def quiet_deploy(
        self, *options: str, real: bool = False, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """`lockstep deploy -i INVENTORY`, where nobody watches and nobody can be asked.

        ``real`` has both programs start as a user's do: seconds of imports.
        """
        argv = ("deploy", "-i", self.inventory, *options)
        environment = self._before(changes)
        if real:
            done = subprocess.run(
                [sys.executable, "-m", "lockstep.cli.main", *argv],
                cwd=self.repository,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
        else:
            done = lockstep(*argv, folder=self.repository, environment=environment, path=self._path)
        self.document = json.loads(self._state.read_text())
        return done

    def _before(self, changes: Mapping[str, Any]) -> dict[str, str]:
        """Write what the hosts are, and return the environment of a deploy to them."""
        self._state.write_text(json.dumps({"hosts": self.document["hosts"], **changes}))
        return {
            **os.environ,
            "PYTHONPATH": self._path,
            "FAKE_SPARKS": str(self._state),
            "XDG_STATE_HOME": str(self.repository / "state"),
        }

    def ran(self, host: str = HOSTS[0]) -> list[str]:
        """Every command of the last run on a host; "? NAME ..." asks readers."""
        ran: list[str] = self.document["ran"][host]
        return ran

    def changes(self, host: str = HOSTS[0]) -> list[str]:
        return [line for line in self.ran(host) if not line.startswith("?")]
