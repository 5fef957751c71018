"""The Sparks for which a recipe is written, as far as they are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.authoring.weights import Weights, read
from lockstep.checkpoints.known_checkpoints import USUAL
from lockstep.fit import catalogue
from lockstep.inventory import inventory_file
from lockstep.inventory.host import HostPlan
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.repository import usual_network


@dataclass(frozen=True)
class Site:
    """An owner's inventory, or an empty site if there is no inventory.

    Attributes:
        inventory: The inventory file.
        plans: The hosts of the inventory.
        files: Each key of the first host's data, with the file that sets it.
        folders: The folders of recipes that the inventory reads.
    """

    inventory: Path | None = None
    plans: Sequence[HostPlan] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Collection[Path] = ()

    @property
    def home(self) -> Path:
        """The owner's folder, or the current folder if there is no inventory."""
        return inventory_file.folder_of(self.inventory) if self.inventory else Path.cwd()

    @property
    def machine(self) -> str:
        """The kind of machine with the least memory among the hosts."""
        hardware = catalogue.knowledge().hardware
        kinds = {catalogue.machine_of(plan.settings) for plan in self.plans} or {USUAL}
        return min(kinds, key=lambda kind: hardware[kind].gib("memory_total_gib"))

    def read_weights(self, name: str, engine: str | None) -> Weights:
        """Read the weights that a name means, from the sources of this site."""
        if not self.plans:
            return read(name, engine, usual_network())
        settings = self.plans[0].settings
        network = Network(settings.sources, settings.proxy)
        return read(name, engine, network, source=settings.hub_token)


def site_of(path: Path) -> Site:
    """Load the site of an inventory file.

    Raises:
        LockstepError: the inventory is wrong.
    """
    plans = inventory_file.load(path)
    files, home = inventory_file.origins(path)[plans[0].name], inventory_file.folder_of(path)
    read_here = (inventory_file.recipe_folders(plan.settings, home) for plan in plans)
    return Site(path, plans, files, {folder for folders in read_here for folder in folders})
