"""The command line and environment that a recipe yields: pure functions of recipe and overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lockstep.core.argv import is_flag
from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags, freeze_guard
from lockstep.recipes.placeholders import engine_of, refuse_leftovers, split, substitute
from lockstep.recipes.recipe_file import Recipe


class AsWritten(dict[str, str]):
    """Shows ``$VAR`` as itself: a listing or a check needs no values from the inventory."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return f"${key}"


def serve_command(
    recipe: Recipe, *, overrides: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """The engine's whole argument list, its own name first.

    Args:
        recipe: What to serve.
        overrides: Recipe key → value; wins over `defaults` and over flags written out in the
            command. Besides every key of the flag table: ``model`` (id or path of a local
            snapshot), ``revision``, ``draft_model``, ``draft_revision``. None removes a flag.

    Raises:
        RecipeError: an engine that Lockstep does not run, unbalanced quotes, shell constructs, a
            circle among placeholders, or a placeholder left over.
    """
    overrides = dict(overrides or {})
    engine = engine_of(recipe)
    if recipe.command:
        argv = split(recipe, substitute(recipe, recipe.command, overrides))
        argv = _add_served_name(recipe, engine, argv, overrides)
    else:
        argv = _built(recipe, engine, overrides)
    argv = _with_overrides(recipe, engine, _model_first(recipe, engine, argv), overrides)
    argv = _with_revisions(recipe, engine, argv, overrides)
    refuse_leftovers(recipe, argv)
    return (*argv, *_always(recipe, engine, argv, overrides))


def _always(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """The engine's flags of every command line, and the freeze guard's, that are not there yet, nor
    refused by their key."""
    said = {**recipe.defaults, **overrides}
    refused = {"--" + key.replace("_", "-") for key in said if said[key] in (None, False)}
    wanted = [*((flag,) for flag in engine.always), freeze_guard.arguments(recipe, argv)]
    return tuple(
        word
        for words in wanted
        if not refused.intersection(words[:1]) and not flags.find(argv, words[:1])
        for word in words
    )


def environment(recipe: Recipe, *, control: Mapping[str, str] | None = None) -> dict[str, str]:
    """The engine's environment.

    Args:
        recipe: What to serve.
        control: Values for ``$VAR`` and ``${VAR}`` inside the recipe's values.

    Raises:
        RecipeError: a value refers to a variable that ``control`` lacks.
    """
    return {
        key: _expanded(recipe, key, value, control or {})
        for key, value in freeze_guard.variables(recipe).items()
    }


def _add_served_name(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """sparkrun appends --served-model-name where the template omits it; so do we."""
    names = engine.spellings("served_model_name")
    name = recipe.defaults.get("served_model_name")
    if name is None or "served_model_name" in overrides or flags.find(argv, names):
        return argv
    return flags.replaced(argv, names, name)


def _built(recipe: Recipe, engine: Engine, overrides: Mapping[str, object]) -> tuple[str, ...]:
    """The command line from `defaults` alone, in their order."""
    flag = () if engine.positional_model else engine.spellings("model")[:1]
    argv = (*engine.entries[0], *flag, recipe.model)
    for key, value in recipe.defaults.items():
        if key == "model" or key in overrides or key in flags.NOT_FLAGS:
            continue
        words = flags.words(_resolved(recipe, value, overrides))
        if words is not None:
            argv = (*argv, _names(recipe, engine, key)[0], *words)
    return argv


def _resolved(recipe: Recipe, value: Any, overrides: Mapping[str, object]) -> Any:
    return substitute(recipe, value, overrides) if isinstance(value, str) else value


def _with_overrides(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    for key, value in overrides.items():
        if key in flags.NOT_FLAGS or key == "revision":
            continue
        if key == "model":
            argv = _with_model(engine, argv, str(value))
            argv = _keep_name(recipe, engine, argv, overrides)
        elif key in ("draft_model", "draft_revision"):
            argv = _with_draft(engine, argv, key, value)
        else:
            argv = flags.replaced(argv, _names(recipe, engine, key), value)
    return argv


def _names(recipe: Recipe, engine: Engine, key: str) -> tuple[str, ...]:
    names = engine.spellings(key)
    if not names:
        raise RecipeError(
            f"{engine.title} has no flag for {key}",
            where=str(recipe.path),
            remedy="Remove it from `defaults`, and from `overrides` of the target.",
        )
    return names


def _model_first(recipe: Recipe, engine: Engine, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A positional model stands right after `serve`, where no flag can swallow it."""
    if engine.positional_model and recipe.model in argv[3:] and is_flag(argv[2]):
        index = argv.index(recipe.model, 3)
        if argv[index - 1] != "--model":
            return (*argv[:2], recipe.model, *argv[2:index], *argv[index + 1 :])
    return argv


def _keep_name(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """A model served from a folder keeps its hub id as its name in the API."""
    names = engine.spellings("served_model_name")
    if overrides["model"] == recipe.model or "served_model_name" in overrides:
        return argv
    return argv if flags.find(argv, names) else flags.replaced(argv, names, recipe.model)


def _with_model(engine: Engine, argv: tuple[str, ...], model: str) -> tuple[str, ...]:
    names = engine.spellings("model")
    for name in engine.hub_model:
        argv = flags.replaced(argv, (name,), None)
    if flags.find(argv, names) or not engine.positional_model:
        return flags.replaced(argv, names, model)
    if len(argv) > 2 and not is_flag(argv[2]):
        return (*argv[:2], model, *argv[3:])
    return (*argv[:2], model, *argv[2:])


def _with_draft(engine: Engine, argv: tuple[str, ...], key: str, value: Any) -> tuple[str, ...]:
    if engine.draft_config:
        field = "model" if key == "draft_model" else "revision"
        return flags.set_json(argv, engine.draft_config, **{field: str(value)})
    if not flags.find(argv, engine.spellings("draft_model")):
        return argv
    return flags.replaced(argv, engine.spellings(key), value)


def _with_revisions(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """Name the commit for model and draft, so that the engine opens what was fetched."""
    names = engine.spellings("revision")
    revision = overrides.get("revision", None if "model" in overrides else recipe.model_revision)
    if revision and names:
        argv = flags.replaced(argv, names, revision)
    draft = recipe.lockstep.draft
    if draft and draft.revision and not {"draft_model", "draft_revision"} & set(overrides):
        argv = _with_draft(engine, argv, "draft_revision", draft.revision)
    return argv


def _expanded(recipe: Recipe, key: str, value: str, control: Mapping[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in control:
            raise RecipeError(
                f"env.{key} refers to ${name}, which is not set",
                where=str(recipe.path),
                remedy="Give the value itself, or set the variable in the inventory.",
            )
        return control[name]

    return re.sub(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", known, value)
