"""The connection to a host's engine, that is, to its hot model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lockstep.bench.look import HostLook
from lockstep.bench.results import ResultError
from lockstep.fleet import hosts
from lockstep.fleet.login import Login
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile, pins
from lockstep.lock.experts import with_known_experts
from lockstep.onhost.core import schema
from lockstep.onhost.core.config import Model
from lockstep.onhost.engines import ENGINES
from lockstep.units.models_json import MODELS

PROBE_S = 60.0


@dataclass(frozen=True)
class BenchAddress:
    """A host of an inventory with its login, and the inventory's lock with its file."""

    plan: HostPlan
    where: Login
    record: pins.Pins
    lock_path: Path

    def probe(self, **more: Any) -> dict[str, Any]:
        """Return the host's own report (`lockstep/onhost/facts/host_load.py`).

        Raises:
            ResultError: no connection, or no answer.
        """
        question = {"models": MODELS, **more}
        probe_answer, fault = hosts.read(
            self.where, "host_load", question, sudo=True, limit_s=PROBE_S
        )
        if fault:
            raise ResultError(
                "the host could not be asked",
                where=self.where.name,
                found=fault,
                remedy="Try `ssh` to it by hand, and measure again when it answers.",
            )
        return dict(probe_answer)

    def secret(self, path: str) -> str:
        """Return the content of a file of the host that only root can read.

        Raises:
            ResultError: the file cannot be read.
        """
        answer = hosts.ask(self.where, ["sudo", "-n", "cat", path], limit_s=PROBE_S)
        if answer.code != 0:
            remedy = "Deploy to this host: the deploy makes the key where there is none."
            raise ResultError(
                "the API key cannot be read",
                where=f"{self.where.name}:{path}",
                found=answer.fault or answer.error_text,
                remedy="Try `ssh` to the host by hand." if answer.fault else remedy,
            )
        return answer.out.strip()

    def look(self, engine: str) -> HostLook:
        """Read the host's state, with the log lines of an engine of this name.

        Raises:
            ResultError: as `probe`.
        """
        engine_known = ENGINES.get(engine)
        probe_answer = self.probe(
            compiler_pattern=engine_known.compile_pattern if engine_known else ""
        )
        return HostLook(**{item.name: probe_answer.get(item.name) for item in fields(HostLook)})


def place(inventory: Path, host: str) -> BenchAddress:
    """Return the address of a host of an inventory.

    Raises:
        InventoryError: the inventory is wrong or has no such host.
    """
    remedy = "Name another inventory with --inventory, or give the engine's URL."
    every, [chosen_host] = hosts.choose(inventory, (host,), remedy=remedy)
    path = inventories.lock_path(inventory, [known_host.plan for known_host in every])
    record = lockfile.load(path)
    return BenchAddress(
        with_known_experts(chosen_host.plan, record), chosen_host.login, record, path
    )


def hot(place: BenchAddress) -> Model:
    """Return the hot model of a host, as the deploy bound it there.

    Raises:
        ResultError: nothing is hot, another host answers for the model, or the host is silent.
    """
    probe_answer = place.probe(index="/nonexistent", vision="$^")
    for name, model_data in probe_answer["models"].items():
        if model_data["unit"] == probe_answer.get("hot"):
            _refuse_rank(place, name)
            where = f"{place.where.name}:{MODELS}"
            model = schema.build(Model, model_data, where=where, error=ResultError, strict=False)
            if model.kind != "chat":
                raise ResultError(
                    f"{name} gives no tokens, and every suite measures tokens",
                    where=place.where.name,
                    found=f"kind {model.kind}",
                    remedy="Make a chat model hot first.",
                )
            return model
    raise ResultError(
        "no model is hot, so there is nothing to measure",
        where=place.where.name,
        remedy="Make one hot first: `switch.sh MODEL` on the host, or `lockstep switch`.",
    )


def _refuse_rank(place: BenchAddress, name: str) -> None:
    """Refuse a member of a cluster other than the first; only the first member has an API."""
    for model in place.plan.models:
        if model.name == name and model.group is not None and not model.answers:
            raise ResultError(
                f"{name} answers on another host of cluster {model.group.name}",
                where=place.where.name,
                remedy=f"Measure it on {model.group.members[0].name}.",
            )
