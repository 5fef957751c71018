"""The weights of an engine: a hub id at its pinned commit, or a folder on the host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lockstep.checkpoints import gguf
from lockstep.inventory.settings import Settings
from lockstep.lock.lock_items import mmproj_of
from lockstep.lock.pins import Pins, entry_of
from lockstep.onhost.weights import weights_spec
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe


def weight_overrides(
    settings: Settings, recipe: Recipe, pins: Pins, argv: Sequence[str] = ()
) -> dict[str, object]:
    """Return overrides for `serve_command` that make the engine open exactly the fetched files.

    `argv` is the command line without them.

    Raises:
        ResolveError: the model or its draft has no pin.
    """
    overrides: dict[str, object] = {}
    if not recipe.model.startswith("/"):
        pin, argument_kind = (
            entry_of(pins.checkpoints, recipe.repository),
            engine_of(recipe).weights,
        )
        if argument_kind == "file":
            names = [file.path for file in pin.files]
            patterns = (gguf.MARK + recipe.quant, *mmproj_of(recipe, argv))
            keys, folder = ("model", "mmproj"), model_path(settings, recipe, pin.commit)
            for key, paths in zip(keys, gguf.chosen_files(names, patterns).values(), strict=False):
                overrides |= {key: f"{folder}/{paths[0]}"} if paths else {}
        elif argument_kind == "folder" or recipe.lockstep.borrow:
            overrides["model"] = model_path(settings, recipe, pin.commit)
        else:
            overrides["revision"] = pin.commit
    draft = draft_of(recipe)
    if draft is not None and not draft.model.startswith("/"):
        overrides["draft_revision"] = entry_of(pins.checkpoints, draft.model).commit
    return overrides


def snapshot(settings: Settings, model: str, commit: str) -> str:
    """Return the folder on a host that holds a model as its repository has it."""
    spec = weights_spec.Spec(Path(settings.paths.hub_cache) / "hub", ())
    return str(spec.snapshot_folder(model, commit))


def model_path(settings: Settings, recipe: Recipe, commit: str) -> str:
    """Return the folder on a host that holds a recipe's model, with the files that it borrows."""
    spec = weights_spec.Spec(Path(settings.paths.hub_cache) / "hub", ())
    borrow = tuple(
        weights_spec.WeightsPart(borrowed_model.model, "", ())
        for borrowed_model in recipe.lockstep.borrow
    )
    return str(spec.model_path(weights_spec.RepositoryPart(recipe.repository, commit, (), borrow)))
