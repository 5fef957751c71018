"""The way to a host's engine: its hot model."""

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
from lockstep.lock.experts import informed
from lockstep.onhost.core import schema
from lockstep.onhost.core.config import Target
from lockstep.onhost.engines import ENGINES
from lockstep.units.targets_json import TARGETS

PROBE_S = 60.0


@dataclass(frozen=True)
class Place:
    """A host of an inventory, the way to it, and the lock of the inventory with its file."""

    plan: HostPlan
    where: Login
    record: pins.Pins
    lock_path: Path

    def probe(self, **more: Any) -> dict[str, Any]:
        """What the host says of itself (`lockstep/onhost/facts/ruler.py`).

        Raises:
            ResultError: no connection, or no answer.
        """
        question = {"targets": TARGETS, **more}
        found, fault = hosts.read(self.where, "ruler", question, sudo=True, limit_s=PROBE_S)
        if fault:
            raise ResultError(
                "the host could not be asked",
                where=self.where.name,
                found=fault,
                remedy="Try `ssh` to it by hand, and measure again when it answers.",
            )
        return dict(found)

    def secret(self, path: str) -> str:
        """The content of a file that only root reads there. ResultError: it cannot be read."""
        found = hosts.ask(self.where, ["sudo", "-n", "cat", path], limit_s=PROBE_S)
        if found.code != 0:
            remedy = "Deploy to this host: the deploy makes the key where there is none."
            raise ResultError(
                "the API key cannot be read",
                where=f"{self.where.name}:{path}",
                found=found.fault or found.said,
                remedy="Try `ssh` to the host by hand." if found.fault else remedy,
            )
        return found.out.strip()

    def look(self, engine: str) -> HostLook:
        """How the host is now, with the log of an engine of this name. ResultError as `probe`."""
        known = ENGINES.get(engine)
        found = self.probe(compiled=known.compiled if known else "")
        return HostLook(**{item.name: found.get(item.name) for item in fields(HostLook)})


def place(inventory: Path, host: str) -> Place:
    """A host of an inventory. InventoryError: the inventory is wrong or has no such host."""
    remedy = "Name another inventory with --inventory, or give the engine's URL."
    every, [chosen] = hosts.choose(inventory, (host,), remedy=remedy)
    path = inventories.lock_path(inventory, [each.plan for each in every])
    record = lockfile.load(path)
    return Place(informed(chosen.plan, record), chosen.login, record, path)


def hot(place: Place) -> Target:
    """What is hot on a host, as the deploy bound it there.

    Raises:
        ResultError: nothing is, another host answers for it, or the host does not answer.
    """
    seen = place.probe(index="/nonexistent", vision="$^")
    for name, bound in seen["targets"].items():
        if bound["unit"] == seen.get("hot"):
            _refuse_rank(place, name)
            where = f"{place.where.name}:{TARGETS}"
            found = schema.build(Target, bound, where=where, error=ResultError, strict=False)
            if found.kind != "chat":
                raise ResultError(
                    f"{name} gives no tokens, and every suite measures tokens",
                    where=place.where.name,
                    found=f"kind {found.kind}",
                    remedy="Make a chat model hot first.",
                )
            return found
    raise ResultError(
        "no model is hot, so there is nothing to measure",
        where=place.where.name,
        remedy="Make one hot first: `switch.sh TARGET` on the host, or `lockstep switch`.",
    )


def _refuse_rank(place: Place, name: str) -> None:
    """The first member of a cluster answers; the others have no API."""
    for bound in place.plan.targets:
        if bound.name == name and bound.group is not None and not bound.answers:
            raise ResultError(
                f"{name} answers on another host of cluster {bound.group.name}",
                where=place.where.name,
                remedy=f"Measure it on {bound.group.members[0].name}.",
            )
