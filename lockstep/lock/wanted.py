"""Every moving input of an inventory: the names that a deploy must resolve first.

Nothing here contacts anything. `lockstep.lock.pins` says what is pinned already, and
`lockstep.lock.resolve` asks the world for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.core.errors import InventoryError
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.settings import Settings
from lockstep.lock.moving import ImageWanted, Item, ModelWanted
from lockstep.lock.packages import engine_precompiled, engine_repositories, engine_sets, tool_sets
from lockstep.models import gguf, weight_files
from lockstep.recipes.command import serve_command
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe

# The hub's own default branch, which an absent revision means.
DEFAULT_REVISION = "main"


def wanted(hosts: Sequence[tuple[Settings, tuple[BoundTarget, ...]]]) -> tuple[Item, ...]:
    """Every moving input over all hosts, each once.

    Raises:
        InventoryError: a requirement, commit or model id that cannot be resolved exactly, or two
            hosts or recipes that want one thing in two versions.
    """
    found: dict[tuple[str, str], Item] = {}
    for settings, targets in hosts:
        images = (
            ImageWanted(reference, settings.expected.architecture)
            for reference in _references(settings, targets)
        )
        engine: tuple[Item, ...] = ()
        if needs_engine(targets):
            engine = (
                *engine_repositories(settings),
                *engine_sets(settings),
                *engine_precompiled(settings),
            )
        for item in (*tool_sets(settings), *engine, *images, *_models(targets)):
            earlier = found.setdefault((item.section, item.key), item)
            found[item.section, item.key] = _both(earlier, item, settings.name)
    return tuple(found.values())


def needs_engine(targets: Iterable[BoundTarget]) -> bool:
    """Whether a host with these targets has an engine in a venv."""
    return any(not recipe.in_container for target in targets for recipe in target.recipes)


def _references(settings: Settings, targets: Iterable[BoundTarget]) -> list[str]:
    page = settings.webui.image if settings.webui.enabled else None
    images = (target.image_of(recipe) for target in targets for recipe in target.recipes)
    return [image for image in (page, *images) if image]


def _models(targets: Iterable[BoundTarget]) -> list[ModelWanted]:
    found: list[ModelWanted] = []
    for target, recipe in [(bound, recipe) for bound in targets for recipe in bound.recipes]:
        draft, own = recipe.lockstep.draft, recipe.model_revision or DEFAULT_REVISION
        argv = serve_command(recipe, overrides=target.overrides(recipe))
        files, unsaid = _files(recipe, argv), recipe.lockstep.moe is None
        formats = () if files else formats_of(recipe, recipe.repository, argv)
        files += recipe.lockstep.more_files if files or formats else ()
        unsaid = unsaid and engine_of(recipe).minds_experts
        found.append(ModelWanted(recipe.repository, own, files, formats, unsaid))
        if draft:
            formats = formats_of(recipe, draft.model, argv)
            found.append(ModelWanted(draft.model, draft.revision or DEFAULT_REVISION, (), formats))
        found += [
            ModelWanted(each.model, each.revision or DEFAULT_REVISION, each.files)
            for each in recipe.lockstep.borrow
        ]
    # A full path is on the host already and has nothing that moves.
    return [item for item in found if not item.id.startswith("/")]


def formats_of(recipe: Recipe, repository: str, argv: Sequence[str]) -> tuple[str, ...]:
    """In which format its engine looks for the weights of a repository; () where nobody knows."""
    patterns = engine_of(recipe).weight_patterns(argv, repository)
    return (weight_files.OR.join(patterns),) if patterns else ()


def _files(recipe: Recipe, argv: Sequence[str]) -> tuple[str, ...]:
    """What is needed by name of a recipe's repository; () where that goes by formats."""
    engine = engine_of(recipe)
    wants_file = engine.weights == "file" and not recipe.model.startswith("/")
    if bool(recipe.quant) != wants_file:
        served = "one GGUF model of a repository" if wants_file else "no GGUF"
        raise InventoryError(
            f"{engine.title} serves {served}",
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
    """What a GGUF model reads images by, as `gguf.chosen` takes it; () for nothing."""
    engine, vision = engine_of(recipe), recipe.lockstep.vision
    named = engine.value(argv, "mmproj") or ""
    if vision is False or named.startswith("/") or not engine.looks_for_mmproj(argv):
        return ()
    return (named or (gguf.MMPROJ if vision else gguf.OPTIONAL_MMPROJ),)


def _both(earlier: Item, later: Item, host: str) -> Item:
    """One want that satisfies two; the lock has one entry per key, so a second meaning is refused.

    Who asks for no revision of a model takes the one that is asked for.
    """
    if isinstance(earlier, ModelWanted) and isinstance(later, ModelWanted):
        return _both_models(earlier, later, host)
    if earlier != later:
        raise InventoryError(
            f"{later.key} is wanted in two ways",
            where=host,
            found=f"{_ways(later, earlier)} here, {_ways(earlier, later)} on a host before it",
            remedy="Give both hosts the same, or put them into two inventories.",
        )
    return later


def _ways(item: object, other: object) -> str:
    """The fields in which two things differ, for an error message."""
    mine, theirs = vars(item), vars(other)
    return ", ".join(f"{name} {value}" for name, value in mine.items() if value != theirs[name])


def _both_models(earlier: ModelWanted, later: ModelWanted, host: str) -> ModelWanted:
    revisions = {earlier.revision, later.revision} - {DEFAULT_REVISION} or {DEFAULT_REVISION}
    if len(revisions) > 1:
        raise InventoryError(
            f"{later.id} is wanted at two revisions",
            where=host,
            found=" and ".join(sorted(revisions)),
            remedy="Pin one revision in all recipes that name this repository.",
        )
    both = (earlier, later)
    whole = not all(each.files or each.formats for each in both)
    files = () if whole else dict.fromkeys(name for each in both for name in each.files)
    formats = () if whole else dict.fromkeys(name for each in both for name in each.formats)
    experts = earlier.experts or later.experts
    return ModelWanted(later.id, revisions.pop(), tuple(files), tuple(formats), experts)
