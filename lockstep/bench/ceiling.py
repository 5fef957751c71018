"""The highest speed of one decoded stream: memory's bandwidth over the bytes that a token reads."""

from __future__ import annotations

from lockstep.models.known_models import Knowledge
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving

# No model of the catalogue reads less for a token than a gigabyte.
_LEAST_GB = 0.1


def ceiling(
    recipe: Recipe, serving: Serving, knowledge: Knowledge, compute_capability: str
) -> float | None:
    """Tokens per second if every drafted token were accepted; None: no such machine is known.

    One step of the large model reads its active weights once and gives at most one token more than
    was drafted. Hosts that split each layer read at the same time; those that split the layers
    among them read one after the other.
    """
    machines = (
        machine
        for machine in knowledge.hardware.values()
        if machine.compute_capability == compute_capability
    )
    machine = next(machines, None)
    if machine is None:
        return None
    read = knowledge.model(recipe.model).token_gb
    bandwidth = float(machine.bandwidth_gb_s.value) * serving.tensor_parallel
    per_token = float(read.value) if read else _LEAST_GB
    return bandwidth / per_token * (1 + (serving.draft_tokens or 0))
