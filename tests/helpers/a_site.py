"""Two Sparks in memory and deploys to them, by the real pyinfra command."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_spark import HOSTS

REPOSITORY = Path(__file__).parents[2]
PYINFRA = Path(sys.executable).with_name("pyinfra")


class Site:
    """Two Sparks; `document` is everything on them and what was run there."""

    def __init__(
        self, repository: Path, hosts: dict[str, Any], inventory: str = "inventories/site.py"
    ) -> None:
        self.repository = repository
        self.inventory = inventory
        self.document: dict[str, Any] = {"hosts": copy.deepcopy(hosts)}

    def deploy(
        self, *options: str, task: str = "deploy.py", **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """`pyinfra -y INVENTORY TASK`; ``changes`` are faults of the hosts.

        With `--dry` and without `-y`, which would leave out what pyinfra finds to change.
        """
        options += () if "--dry" in options else ("-y",)
        return self._run([str(PYINFRA), *options, self.inventory, task], changes)

    def quiet_deploy(self, *options: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        """`lockstep deploy -i INVENTORY`, where nobody watches and nobody can be asked."""
        program = [sys.executable, "-m", "lockstep.cli.main", "deploy", "-i", self.inventory]
        return self._run([*program, *options], changes)

    def _run(
        self, argv: Sequence[str], changes: Mapping[str, Any]
    ) -> subprocess.CompletedProcess[str]:
        state = self.repository / "state.json"
        state.write_text(json.dumps({"hosts": self.document["hosts"], **changes}))
        folders = (self.repository, Path(__file__).parent, REPOSITORY / "tests/helpers")
        done = subprocess.run(
            argv,
            cwd=self.repository,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, folders)),
                "FAKE_SPARKS": str(state),
                "XDG_STATE_HOME": str(self.repository / "state"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.document = json.loads(state.read_text())
        return done

    def ran(self, host: str = HOSTS[0]) -> list[str]:
        """Every command of the last run on a host; "? NAME ..." asks readers."""
        ran: list[str] = self.document["ran"][host]
        return ran

    def changes(self, host: str = HOSTS[0]) -> list[str]:
        return [line for line in self.ran(host) if not line.startswith("?")]
