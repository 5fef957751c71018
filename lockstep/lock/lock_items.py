"""Every moving input of an inventory: the names that a deploy must resolve first.

Nothing here contacts a server. `lockstep.lock.pins` holds the pinned inputs, and
`lockstep.lock.resolve` asks servers for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.checkpoints import gguf, weight_files
from lockstep.core.errors import InventoryError
from lockstep.inventory.bound_models import BoundModel
from lockstep.inventory.settings import Settings
from lockstep.lock.moving import CheckpointItem, ImageItem, Item
from lockstep.lock.packages import engine_precompiled, engine_repositories, engine_sets, tool_sets
from lockstep.recipes.draft import draft_of
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe

# The hub's own default branch, which an absent revision means.
DEFAULT_REVISION = "main"


def wanted_items(hosts: Sequence[tuple[Settings, tuple[BoundModel, ...]]]) -> tuple[Item, ...]:
    """Return every moving input over all hosts, each once.

    Raises:
        InventoryError: a requirement, commit or hub id that cannot be resolved exactly, or two
            hosts or recipes that want one thing in two versions.
    """
    items: dict[tuple[str, str], Item] = {}
    for settings, models in hosts:
        images = (
            ImageItem(reference, settings.expected.architecture)
            for reference in _references(settings, models)
        )
        engine: tuple[Item, ...] = ()
        if needs_engine(models):
            engine = (
                *engine_repositories(settings),
                *engine_sets(settings),
                *engine_precompiled(settings),
            )
        for item in (*tool_sets(settings), *engine, *images, *_checkpoints(models)):
            earlier = items.setdefault((item.section, item.key), item)
            items[item.section, item.key] = _merge_items(earlier, item, settings.name)
    return tuple(items.values())


def needs_engine(models: Iterable[BoundModel]) -> bool:
    """Tell whether a host with these models has an engine in a venv."""
    return any(not recipe.in_container for model in models for recipe in model.recipes)


def _references(settings: Settings, models: Iterable[BoundModel]) -> list[str]:
    page = settings.webui.image if settings.webui.enabled else None
    images = (model.image_of(recipe) for model in models for recipe in model.recipes)
    return [image for image in (page, *images) if image]


def _checkpoints(models: Iterable[BoundModel]) -> list[CheckpointItem]:
    wanted_checkpoints: list[CheckpointItem] = []
    for model, recipe in [
        (bound_model, recipe) for bound_model in models for recipe in bound_model.recipes
    ]:
        draft, own = draft_of(recipe), recipe.model_revision or DEFAULT_REVISION
        argv = model.command(recipe)
        files, unsaid = _files(recipe, argv), recipe.lockstep.moe is None
        formats = () if files else formats_of(recipe, recipe.repository, argv)
        files += recipe.lockstep.more_files if files or formats else ()
        unsaid = unsaid and engine_of(recipe).has_rules_by_model_experts
        wanted_checkpoints.append(CheckpointItem(recipe.repository, own, files, formats, unsaid))
        if draft:
            formats = formats_of(recipe, draft.model, argv)
            wanted_checkpoints.append(
                CheckpointItem(draft.model, draft.revision or DEFAULT_REVISION, (), formats)
            )
        wanted_checkpoints += [
            CheckpointItem(borrow.model, borrow.revision or DEFAULT_REVISION, borrow.files)
            for borrow in recipe.lockstep.borrow
        ]
    # A full path is on the host already and has nothing that moves.
    return [item for item in wanted_checkpoints if not item.id.startswith("/")]


def formats_of(recipe: Recipe, repository: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the weight formats that the engine looks for in a repository; () if unknown."""
    patterns = engine_of(recipe).weight_patterns(argv, repository)
    return (weight_files.OR.join(patterns),) if patterns else ()


def _files(recipe: Recipe, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a recipe's repository needed by name; () where formats decide."""
    engine = engine_of(recipe)
    wants_file = engine.weights == "file" and not recipe.model.startswith("/")
    if bool(recipe.quant) != wants_file:
        rule = "one GGUF model of a repository" if wants_file else "no GGUF"
        raise InventoryError(
            f"{engine.title} serves {rule}",
            where=str(recipe.path),
            found=repr(recipe.model),
            remedy="Name the model as REPOSITORY:QUANT."
            if wants_file
            else "Name a recipe with a repository of safetensors.",
        )
    if not recipe.quant:
        return ()
    return (gguf.MARK + recipe.quant, *mmproj_of(recipe, argv))


def mmproj_of(recipe: Recipe, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the file by which a GGUF model reads images, for `gguf.chosen`; () for none."""
    engine, vision = engine_of(recipe), recipe.lockstep.vision
    mmproj_name = engine.value(argv, "mmproj") or ""
    if vision is False or mmproj_name.startswith("/") or not engine.looks_for_mmproj(argv):
        return ()
    return (mmproj_name or (gguf.MMPROJ if vision else gguf.OPTIONAL_MMPROJ),)


def _merge_items(earlier: Item, later: Item, host: str) -> Item:
    """Merge two wants of one thing; the lock has one entry per key, so two meanings are refused.

    A want without a revision of a model takes the other one's revision.
    """
    if isinstance(earlier, CheckpointItem) and isinstance(later, CheckpointItem):
        return _both_checkpoints(earlier, later, host)
    if earlier != later:
        raise InventoryError(
            f"{later.key} is wanted in two ways",
            where=host,
            found=f"{_ways(later, earlier)} here, {_ways(earlier, later)} on a host before it",
            remedy="Give both hosts the same, or put them into two inventories.",
        )
    return later


def _ways(item: object, second: object) -> str:
    """Return the fields in which two things differ, for an error message."""
    first_values, second_values = vars(item), vars(second)
    return ", ".join(
        f"{name} {value}" for name, value in first_values.items() if value != second_values[name]
    )


def _both_checkpoints(earlier: CheckpointItem, later: CheckpointItem, host: str) -> CheckpointItem:
    revisions = {earlier.revision, later.revision} - {DEFAULT_REVISION} or {DEFAULT_REVISION}
    if len(revisions) > 1:
        raise InventoryError(
            f"{later.id} is wanted at two revisions",
            where=host,
            found=" and ".join(sorted(revisions)),
            remedy="Pin one revision in all recipes that name this repository.",
        )
    both_items = (earlier, later)
    whole = not all(model_item.files or model_item.formats for model_item in both_items)
    files = (
        ()
        if whole
        else dict.fromkeys(name for model_item in both_items for name in model_item.files)
    )
    formats = (
        ()
        if whole
        else dict.fromkeys(name for model_item in both_items for name in model_item.formats)
    )
    experts = earlier.experts or later.experts
    return CheckpointItem(later.id, revisions.pop(), tuple(files), tuple(formats), experts)
