"""The recipes of the catalogue that a new recipe follows, by family and by engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.authoring.weights import Weights
from lockstep.checkpoints.quantisation import scheme_of
from lockstep.core.errors import RecipeError
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import checkpoint_of
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe

#: Recipe keys that belong to a family, independent of its quantisation.
FAMILY_KEYS = ("attention_backend", "tool_call_parser", "reasoning_parser")


@dataclass(frozen=True)
class RelatedRecipes:
    """The recipes of the catalogue that are near to a repository.

    Attributes:
        nearest: The nearest recipe of the same family and engine; None: the catalogue knows none.
        same_storage: True if the weights of `nearest` are stored in the same way.
        starter: The recipe whose image or venv starts the engine.
        other_engines: Engines on which the catalogue knows the family, if `nearest` is None.
    """

    nearest: Recipe | None
    same_storage: bool
    starter: Recipe
    other_engines: tuple[str, ...]

    @property
    def family_values(self) -> dict[str, str]:
        """The values of the nearest recipe by recipe key of `FAMILY_KEYS`."""
        if self.nearest is None or self.nearest.engine is None:
            return {}
        argv, engine = serve_command(self.nearest), self.nearest.engine
        values = {key: engine.value(argv, key) for key in FAMILY_KEYS}
        return {key: value for key, value in values.items() if value}


def find_related(weights: Weights, catalogue: Catalogue) -> RelatedRecipes:
    """Find the recipes nearest to given weights.

    The family comes from the repository's name, if the catalogue knows it, or from `model_type`.
    """
    knowledge, types = catalogue.knowledge, weights.checkpoint.types
    families = {family for family, kind in knowledge.types.items() if kind in types}
    families |= {family for family in [knowledge.checkpoint(weights.model).family] if family}
    alone = [
        recipe
        for recipe in catalogue.recipes.values()
        if recipe.engine and recipe.min_nodes == 1 and recipe.lockstep.known_bad is None
    ]
    family = [
        recipe
        for recipe in alone
        if recipe.model == weights.model or checkpoint_of(recipe, knowledge).family in families
    ]

    def distance(recipe: Recipe) -> tuple[bool, bool, bool, str]:
        drafts = recipe.lockstep.draft is not None or "speculative" in recipe.command
        differs = storage_of(recipe, catalogue) != weights.scheme
        return recipe.model != weights.model, differs, drafts, recipe.name

    near = sorted(
        (related_recipe for related_recipe in family if related_recipe.engine is weights.engine),
        key=distance,
    )
    nearest = near[0] if near else None
    other_engines = {
        related_recipe.engine.name for related_recipe in family if related_recipe.engine
    } - {weights.engine.name}
    return RelatedRecipes(
        nearest,
        nearest is not None and storage_of(nearest, catalogue) == weights.scheme,
        nearest or _usual(weights, {recipe.name: recipe for recipe in alone}),
        () if nearest else tuple(name for name in ENGINES if name in other_engines),
    )


def storage_of(recipe: Recipe, catalogue: Catalogue) -> str:
    """Return the storage of a recipe's weights, in the terms of `Weights.scheme`."""
    known_storage = checkpoint_of(recipe, catalogue.knowledge).quantisation
    storage = known_storage or str(recipe.metadata.get("model_dtype", ""))
    return "gguf" if recipe.quant else scheme_of(storage)


def _usual(weights: Weights, recipes: Mapping[str, Recipe]) -> Recipe:
    """Return a recipe with the image that most recipes of the engine use.

    Raises:
        RecipeError: no recipe of the engine names an image.
    """
    own = [
        value for value in recipes.values() if value.engine is weights.engine and value.container
    ]
    if not own:
        raise RecipeError(
            f"no recipe of the catalogue names an image of {weights.engine.title}",
            remedy="Write the recipe by hand (`lockstep help recipes`).",
        )
    image = Counter(value.container for value in own).most_common(1)[0][0]
    return next(value for value in own if value.container == image)
