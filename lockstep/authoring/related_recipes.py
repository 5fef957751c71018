"""The recipes of the catalogue that a new one follows: of its family, and of its engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.authoring.weights import Weights
from lockstep.core.errors import RecipeError
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.fit import model_of
from lockstep.models.quantisation import scheme_of
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe

#: Recipe keys that belong to a family, whatever its quantisation.
FAMILY_KEYS = ("attention_backend", "tool_call_parser", "reasoning_parser")


@dataclass(frozen=True)
class RelatedRecipes:
    """The recipes of the catalogue that are near to a repository.

    Attributes:
        nearest: The nearest recipe of the same family and engine; None: it knows none.
        same_storage: Whether that one's weights are stored in the same way.
        starter: The recipe whose image, or venv, starts the engine.
        other_engines: Engines on which the catalogue knows the family, where none is nearest.
    """

    nearest: Recipe | None
    same_storage: bool
    starter: Recipe
    other_engines: tuple[str, ...]

    @property
    def family_values(self) -> dict[str, str]:
        """Recipe key of `FAMILY_KEYS` → what the nearest recipe says."""
        if self.nearest is None or self.nearest.engine is None:
            return {}
        argv, engine = serve_command(self.nearest), self.nearest.engine
        said = {key: engine.value(argv, key) for key in FAMILY_KEYS}
        return {key: value for key, value in said.items() if value}


def find_related(weights: Weights, catalogue: Catalogue) -> RelatedRecipes:
    """The nearest recipes for some weights.

    A family is told by the repository's name, which the catalogue may know, or by `model_type`.
    """
    knowledge, types = catalogue.knowledge, weights.checkpoint.types
    families = {family for family, kind in knowledge.types.items() if kind in types}
    families |= {family for family in [knowledge.model(weights.model).family] if family}
    alone = [
        recipe
        for recipe in catalogue.recipes.values()
        if recipe.engine and recipe.min_nodes == 1 and recipe.lockstep.known_bad is None
    ]
    family = [
        recipe
        for recipe in alone
        if recipe.model == weights.model or model_of(recipe, knowledge).family in families
    ]

    def distance(recipe: Recipe) -> tuple[bool, bool, bool, str]:
        drafts = recipe.lockstep.draft is not None or "speculative" in recipe.command
        differs = stored(recipe, catalogue) != weights.scheme
        return recipe.model != weights.model, differs, drafts, recipe.name

    near = sorted((each for each in family if each.engine is weights.engine), key=distance)
    nearest = near[0] if near else None
    others = {each.engine.name for each in family if each.engine} - {weights.engine.name}
    return RelatedRecipes(
        nearest,
        nearest is not None and stored(nearest, catalogue) == weights.scheme,
        nearest or _usual(weights, {recipe.name: recipe for recipe in alone}),
        () if nearest else tuple(name for name in ENGINES if name in others),
    )


def stored(recipe: Recipe, catalogue: Catalogue) -> str:
    """How the weights of a recipe are stored, as `Weights.scheme` calls it."""
    known = model_of(recipe, catalogue.knowledge).quantisation
    said = known or str(recipe.metadata.get("model_dtype", ""))
    return "gguf" if recipe.quant else scheme_of(said)


def _usual(weights: Weights, recipes: Mapping[str, Recipe]) -> Recipe:
    """A recipe with the image that most recipes of the engine have. RecipeError without any."""
    own = [each for each in recipes.values() if each.engine is weights.engine and each.container]
    if not own:
        raise RecipeError(
            f"no recipe of the catalogue names an image of {weights.engine.title}",
            remedy="Write the recipe by hand (`lockstep help recipes`).",
        )
    image = Counter(each.container for each in own).most_common(1)[0][0]
    return next(each for each in own if each.container == image)
