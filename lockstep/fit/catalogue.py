"""The catalogue folder as one value: recipes, models and machines, licences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.checkpoints.known_checkpoints import Knowledge, load_knowledge
from lockstep.checkpoints.licences import osi_approved
from lockstep.core import product
from lockstep.inventory.settings import Settings
from lockstep.recipes.recipe_file import Recipe, load_catalogue

FOLDER = product.CATALOGUE


@dataclass(frozen=True)
class Catalogue:
    """All that the checks know; `accepted` are licences of weights, by their SPDX ids."""

    recipes: Mapping[str, Recipe]
    knowledge: Knowledge
    accepted_licences: frozenset[str]


def knowledge() -> Knowledge:
    """Return the models and machines of the catalogue."""
    return load_knowledge(FOLDER)


def machine_of(settings: Settings) -> str:
    """Return the kind of machine that has the least memory that the inventory expects of a host."""
    return knowledge().machine_with(settings.expected.memory_gib)


def load(folder: Path = FOLDER) -> Catalogue:
    """Load a catalogue folder; LockstepError where any of its files is wrong."""
    return Catalogue(
        recipes=load_catalogue(folder / "recipes"),
        knowledge=load_knowledge(folder),
        accepted_licences=osi_approved(folder),
    )
