"""Two Sparks in memory and deploys to them, by pyinfra's own command."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from fake_spark import HOSTS
from forked_pyinfra import forks

REPOSITORY = Path(__file__).parents[2]


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
        state = self.repository / "state.json"
        state.write_text(json.dumps({"hosts": self.document["hosts"], **changes}))
        folders = (self.repository, Path(__file__).parent, REPOSITORY / "tests/helpers")
        path = os.pathsep.join(map(str, folders))
        done = forks(self.repository, path).run(
            [*options, self.inventory, task],
            {**os.environ, "PYTHONPATH": path, "FAKE_SPARKS": str(state)},
            limit_s=120,
        )
        self.document = json.loads(state.read_text())
        return done

    def ran(self, host: str = HOSTS[0]) -> list[str]:
        """Every command of the last run on a host; "? NAME ..." asks readers."""
        ran: list[str] = self.document["ran"][host]
        return ran

    def changes(self, host: str = HOSTS[0]) -> list[str]:
        return [line for line in self.ran(host) if not line.startswith("?")]
