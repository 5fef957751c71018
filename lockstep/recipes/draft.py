"""The repository of a recipe's draft."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import Engine
from lockstep.recipes import flags
from lockstep.recipes.block import Draft, is_hub_id
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe


def draft_of(recipe: Recipe) -> Draft | None:
    """Return the draft that a recipe states, else the one that its command takes from the hub.

    None where there is neither, and for an engine that takes a draft as a file: its command names
    no repository.
    """
    draft, engine = recipe.lockstep.draft, recipe.engine
    takes_repository = engine and (engine.draft_config or engine.spellings("draft_revision"))
    if draft or not engine or not takes_repository:
        return draft
    try:
        name, revision = named_draft(engine, serve_command(recipe))
    except RecipeError:
        return None  # the check of the recipe says it
    own_names = {recipe.model, recipe.repository, *(part.model for part in recipe.lockstep.borrow)}
    if not name or "/" not in name or not is_hub_id(name) or name in own_names:
        return None
    return Draft(name, revision)


def named_draft(engine: Engine, argv: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the name of the draft in a command line and its revision, each None if absent."""
    if not engine.draft_config:
        spellings = (engine.spellings("draft_model"), engine.spellings("draft_revision"))
        return flags.value_of(argv, spellings[0]), flags.value_of(argv, spellings[1]) or None
    text = flags.value_of(argv, engine.draft_config)
    values = flags.json_value(engine.draft_config[0], text) if text else {}
    name, revision = (values.get(key) for key in ("model", "revision"))
    return (name if isinstance(name, str) else None, str(revision) if revision else None)
