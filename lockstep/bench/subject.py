"""The hot model of a host, as inventory, catalogue and lock describe it."""

from __future__ import annotations

import hashlib

from lockstep.bench.reach import BenchAddress
from lockstep.bench.results import ResultError, Subject
from lockstep.bench.ruler import ExpectedFigures
from lockstep.checkpoints.checkpoint import VISION
from lockstep.checkpoints.known_checkpoints import Knowledge
from lockstep.fit import catalogue
from lockstep.fit.fit import checkpoint_of
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.bound_models import BoundModel
from lockstep.onhost.core.config import Model
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving
from lockstep.system.folders import wanted_restart_key

# Below the lightest model of the catalogue: none reads less than a gigabyte for a token.
_LEAST_GB = 0.1


def of_host(
    place: BenchAddress, hot: Model, inventory: str
) -> tuple[Subject, ExpectedFigures, int | None]:
    """Return the subject, the ruler's expectation, and the number of vision tensors.

    Raises:
        ResultError: the host runs a model that the inventory does not know.
    """
    model, recipe = _bound_recipe(place, hot)
    pin = place.record.checkpoints.get(recipe.repository)
    lock = place.lock_path
    about = Subject(
        url=hot.engine_url or hot.url,
        served_name=hot.served_name,
        host=place.plan.name,
        inventory=inventory,
        model=hot.name,
        recipe=recipe.name,
        engine=recipe.engine.name if recipe.engine else None,
        image=hot.image,
        revision=pin.commit if pin else None,
        restart_key=place.look(hot.engine).restart_key,
        lock=hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else None,
        max_clock_mhz=place.plan.settings.gpu.max_clock_mhz,
        flags=model.command(recipe),
    )
    knowledge = catalogue.load(catalogue.FOLDER).knowledge
    model_serving = model.serving(recipe)
    desired_state = DesiredState(place.plan, place.record)
    capability = place.plan.settings.expected.compute_capability
    expectation = ExpectedFigures(
        model=hot.served_name,
        unit=hot.unit,
        restart_key=wanted_restart_key(desired_state.files("services"), hot.unit) or None,
        ceiling_tok_s=ceiling(recipe, model_serving, knowledge, capability),
        sequences=model_serving.sequences,
    )
    return about, expectation, _vision(place, recipe, pin.commit if pin else None)


def _bound_recipe(place: BenchAddress, hot: Model) -> tuple[BoundModel, Recipe]:
    for model in place.plan.models:
        for name, _, recipe in model.forms:
            if (name, recipe.name) == (hot.name, hot.recipe):
                return model, recipe
    raise ResultError(
        "the hot model is not what the inventory asks for",
        where=place.where.name,
        found=f"{hot.name} with recipe {hot.recipe}",
        remedy="Deploy first, or measure the engine by its URL.",
    )


def _vision(place: BenchAddress, recipe: Recipe, commit: str | None) -> int | None:
    if commit is None:
        return None
    folder = f"models--{recipe.repository.replace('/', '--')}/snapshots/{commit}"
    hub = f"{place.plan.settings.paths.hub_cache}/hub/{folder}"
    for name in ("model.safetensors.index.json", "consolidated.safetensors.index.json"):
        tensors = place.probe(index=f"{hub}/{name}", vision=VISION.pattern).get("tensors")
        if tensors is not None:
            return int(tensors["vision"])
    return None


def ceiling(
    recipe: Recipe, serving: Serving, knowledge: Knowledge, compute_capability: str
) -> float | None:
    """Return the highest tok/s of one stream, every drafted token accepted; None: unknown machine.

    One step of the large model reads its active weights once and gives at most one token more than
    was drafted. Hosts that split each layer read at the same time. Hosts that split the layers
    among them read one after another.
    """
    for machine in knowledge.hardware.values():
        if machine.compute_capability == compute_capability:
            read = checkpoint_of(recipe, knowledge).token_gb
            bandwidth = float(machine.bandwidth_gb_s.value) * serving.tensor_parallel
            per_token = float(read.value) if read else _LEAST_GB
            return bandwidth / per_token * (1 + (serving.draft_tokens or 0))
    return None
