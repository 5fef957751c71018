"""A host with models: one engine answers for all of them; its systemd and Docker are made up."""

import json
from pathlib import Path
from typing import Any

import pytest
from a_model import about, tell
from onhost_fakes import FakeDocker, FakeEngine, FakeSystemd, host_root

#: systemd's properties of an active unit.
UP = {"ActiveState": "active", "SubState": "running"}


class ModelHost:
    """A host's models by name, each with its keys in models.json; `up` is the hot one."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        models: dict[str, dict[str, Any]],
        up: str | None = None,
        available_gib: float = 100.0,
    ) -> None:
        self.folder = folder
        self.engine = FakeEngine()
        self.models = {
            name: about(**{"url": self.engine.url, "unit": f"{name}.service", **keys})
            for name, keys in models.items()
        }
        self.unit_of = {name: model["unit"] for name, model in self.models.items()}
        self.paths = host_root(folder / "root", self.models, available_gib)
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        self.docker = FakeDocker(self.paths.docker_socket)
        for name, unit in self.unit_of.items():
            self.systemd.unit(unit, **(UP if name == up else {}))

    def tell(self, name: str, **values: object) -> None:
        data = json.loads(self.paths.models.read_text())
        data["models"][name].update(values)
        self.paths.models.write_text(json.dumps(data))

    def join_cluster(self, name: str, rank: int = 0) -> None:
        """Make a model one of a cluster of two, in which this host has that rank."""
        members = [{"name": f"spark{n}", "address": f"10.77.0.{n}"} for n in (1, 2)]
        pair = {"name": "pair", "rank": rank, "port": 7079, "members": members, "links": {}}
        tell(self.paths, clusters={"pair": pair})
        self.tell(name, cluster="pair")

    @property
    def hot(self) -> list[str]:
        states = {name: self.systemd.state(unit) for name, unit in self.unit_of.items()}
        return [name for name, state in states.items() if state["ActiveState"] == "active"]

    def close(self) -> None:
        self.docker.close()
        self.engine.close()
