"""The catalogue folder as one value: recipes, models and machines, licences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.core import product
from lockstep.inventory.settings import Settings
from lockstep.models.known_models import Knowledge, load_knowledge
from lockstep.models.licences import osi_approved
from lockstep.recipes.recipe_file import Recipe, load_catalogue

FOLDER = product.CATALOGUE


@dataclass(frozen=True)
class Catalogue:
    """Everything the checks know; `accepted` are licences of weights, by their SPDX ids."""

    recipes: Mapping[str, Recipe]
    knowledge: Knowledge
    accepted: frozenset[str]


def knowledge() -> Knowledge:
    """Models and machines of the catalogue."""
    return load_knowledge(FOLDER)


def machine_of(settings: Settings) -> str:
    """The kind of machine that a host is said to be, by the least memory that is expected of it."""
    return knowledge().machine_with(settings.expected.memory_gib)


def load(folder: Path = FOLDER) -> Catalogue:
    """A catalogue folder; LockstepError where any of its files is wrong."""
    return Catalogue(
        recipes=load_catalogue(folder / "recipes"),
        knowledge=load_knowledge(folder),
        accepted=osi_approved(folder),
    )
