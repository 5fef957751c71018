"""The highest speed of one decoded stream: memory's bandwidth over the bytes that a token reads."""

from __future__ import annotations

from lockstep.bench.ruler import FASTEST_TOK_S
from lockstep.models.known_models import Knowledge
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving

MACHINE = "dgx-spark"


def ceiling(recipe: Recipe, serving: Serving, knowledge: Knowledge) -> float:
    """Tokens per second if every drafted token were accepted; `FASTEST_TOK_S` where unknown.

    One step of the large model reads its active weights once and gives at most one token more than
    was drafted. Hosts that split each layer read at the same time; those that split the layers
    among them read one after the other.
    """
    read = knowledge.model(recipe.model).token_gb
    if read is None:
        return FASTEST_TOK_S
    bandwidth = float(knowledge.hardware[MACHINE].bandwidth_gb_s.value) * serving.tensor_parallel
    return bandwidth / float(read.value) * (1 + (serving.draft_tokens or 0))
