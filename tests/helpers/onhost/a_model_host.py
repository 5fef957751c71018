"""A host with models: one engine answers for all of them; its systemd and Docker are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from a_target import about
from onhost_fakes import FakeDocker, FakeEngine, FakeSystemd, host_root

#: What systemd says of a unit that is up.
UP = {"ActiveState": "active", "SubState": "running"}


class ModelHost:
    """Its models by name, each with keys of its target; `up` is the one that is hot."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        targets: dict[str, dict[str, Any]],
        up: str | None = None,
        available_gib: float = 100.0,
    ) -> None:
        self.folder = folder
        self.engine = FakeEngine()
        self.targets = {
            name: about(**{"url": self.engine.url, "unit": f"{name}.service", **keys})
            for name, keys in targets.items()
        }
        self.unit_of = {name: target["unit"] for name, target in self.targets.items()}
        self.paths = host_root(folder / "root", self.targets, available_gib)
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        self.docker = FakeDocker(self.paths.docker_socket)
        for name, unit in self.unit_of.items():
            self.systemd.unit(unit, **(UP if name == up else {}))

    def tell(self, name: str, **values: object) -> None:
        """Change a target's data."""
        data = json.loads(self.paths.targets.read_text())
        data["targets"][name].update(values)
        self.paths.targets.write_text(json.dumps(data))

    @property
    def hot(self) -> list[str]:
        """The models whose units are up."""
        states = {name: self.systemd.state(unit) for name, unit in self.unit_of.items()}
        return [name for name, state in states.items() if state["ActiveState"] == "active"]

    def close(self) -> None:
        self.docker.close()
        self.engine.close()
