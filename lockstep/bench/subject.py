"""The hot target of a host, as inventory, catalogue and lock describe it."""

from __future__ import annotations

import hashlib

from lockstep.bench.reach import Place
from lockstep.bench.results import ResultError, Subject
from lockstep.bench.ruler import Expected
from lockstep.fit import catalogue
from lockstep.fit.fit import model_of
from lockstep.host.intended import Intended
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.models.checkpoint import VISION
from lockstep.models.known_models import Knowledge
from lockstep.onhost.core.config import Target
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving
from lockstep.system.folders import generation

# No model of the catalogue reads less for a token than a gigabyte.
_LEAST_GB = 0.1


def of_host(place: Place, hot: Target, inventory: str) -> tuple[Subject, Expected, int | None]:
    """The subject, what the ruler is to find, and the vision tensors of the weight map.

    Raises:
        ResultError: the host runs what the inventory does not know.
    """
    target, recipe = _bound(place, hot)
    pin = place.record.models.get(recipe.repository)
    overrides, lock = target.overrides(recipe), place.lock_path
    about = Subject(
        url=hot.engine_url or hot.url,
        model=hot.model,
        host=place.plan.name,
        inventory=inventory,
        target=hot.name,
        recipe=recipe.name,
        engine=recipe.engine.name if recipe.engine else None,
        image=hot.image,
        revision=pin.commit if pin else None,
        generation=place.look(hot.engine).generation,
        lock=hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else None,
        max_clock_mhz=place.plan.settings.gpu.max_clock_mhz,
        flags=tuple(serve_command(recipe, overrides=overrides)),
    )
    knowledge = catalogue.load(catalogue.FOLDER).knowledge
    asked = serving(recipe, overrides)
    intended = Intended(place.plan, place.record)
    capability = place.plan.settings.expected.compute_capability
    expected = Expected(
        model=hot.model,
        unit=hot.unit,
        generation=generation(intended.files("services"), hot.unit) or None,
        ceiling_tok_s=ceiling(recipe, asked, knowledge, capability),
        sequences=asked.sequences,
    )
    return about, expected, _vision(place, recipe, pin.commit if pin else None)


def _bound(place: Place, hot: Target) -> tuple[BoundTarget, Recipe]:
    for target in place.plan.targets:
        for name, _, recipe in target.forms:
            if (name, recipe.name) == (hot.name, hot.recipe):
                return target, recipe
    raise ResultError(
        "the hot target is not what the inventory asks for",
        where=place.where.name,
        found=f"{hot.name} with recipe {hot.recipe}",
        remedy="Deploy first, or measure the engine by its URL.",
    )


def _vision(place: Place, recipe: Recipe, commit: str | None) -> int | None:
    if commit is None:
        return None
    folder = f"models--{recipe.repository.replace('/', '--')}/snapshots/{commit}"
    hub = f"{place.plan.settings.paths.hub_cache}/hub/{folder}"
    for name in ("model.safetensors.index.json", "consolidated.safetensors.index.json"):
        found = place.probe(index=f"{hub}/{name}", vision=VISION.pattern).get("tensors")
        if found is not None:
            return int(found["vision"])
    return None


def ceiling(
    recipe: Recipe, asked: Serving, knowledge: Knowledge, compute_capability: str
) -> float | None:
    """The highest tok/s of one stream, every drafted token accepted; None: the machine is unknown.

    One step of the large model reads its active weights once and gives at most one token more than
    was drafted. Hosts that split each layer read at the same time; those that split the layers
    among them read one after the other.
    """
    for machine in knowledge.hardware.values():
        if machine.compute_capability == compute_capability:
            read = model_of(recipe, knowledge).token_gb
            bandwidth = float(machine.bandwidth_gb_s.value) * asked.tensor_parallel
            per_token = float(read.value) if read else _LEAST_GB
            return bandwidth / per_token * (1 + (asked.draft_tokens or 0))
    return None
