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
from lockstep.models import gguf
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
    found: list[tuple[str, str | None, tuple[str, ...], bool]] = []
    for recipe in (recipe for target in targets for recipe in target.recipes):
        draft = recipe.lockstep.draft
        unsaid = recipe.lockstep.moe is None and engine_of(recipe).minds_experts
        found.append((recipe.repository, recipe.model_revision, _files(recipe), unsaid))
        found += [(draft.model, draft.revision, (), False)] if draft else []
        found += [(each.model, each.revision, each.files, False) for each in recipe.lockstep.borrow]
    return [
        ModelWanted(name, revision or DEFAULT_REVISION, files, unsaid)
        for name, revision, files, unsaid in found
        # A full path is on the host already and has nothing that moves.
        if not name.startswith("/")
    ]


def _files(recipe: Recipe) -> tuple[str, ...]:
    """What is needed of a recipe's repository; () for all of it."""
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
    return (gguf.MARK + recipe.quant,) if recipe.quant else ()


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
    whole = not earlier.files or not later.files
    files = () if whole else tuple(dict.fromkeys((*earlier.files, *later.files)))
    return ModelWanted(later.id, revisions.pop(), files, earlier.experts or later.experts)
