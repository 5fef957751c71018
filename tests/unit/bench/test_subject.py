"""How fast one stream can be decoded at most: the memory's bandwidth, by what a token reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.bench.ruler import FASTEST_TOK_S
from lockstep.bench.subject import ceiling
from lockstep.fit import catalogue
from lockstep.recipes.sizing import Serving

SPARK = "12.1"
MISTRAL = "mistral-small-4-119b-nvfp4-sglang-eagle"


@pytest.fixture(scope="module")
def known() -> catalogue.Catalogue:
    return catalogue.load(catalogue.FOLDER)


def most(known: catalogue.Catalogue, recipe: str = MISTRAL, **serving: int) -> float:
    found = ceiling(known.recipes[recipe], Serving(**serving), known.knowledge, SPARK)
    assert found is not None
    return found


def test_one_spark_reads_273_gb_in_a_second(known: catalogue.Catalogue) -> None:
    read = known.knowledge.model(known.recipes[MISTRAL].model).token_gb
    assert read is not None
    assert most(known) == pytest.approx(273 / float(read.value))


def test_each_drafted_token_may_be_taken(known: catalogue.Catalogue) -> None:
    assert most(known, draft_tokens=3) == pytest.approx(4 * most(known))


def test_hosts_that_split_each_layer_read_at_the_same_time(known: catalogue.Catalogue) -> None:
    assert most(known, tensor_parallel=2) == pytest.approx(2 * most(known))
    assert most(known, pipeline_parallel=2, data_parallel=2) == pytest.approx(most(known))


def test_without_a_figure_anything_possible_is_allowed(known: catalogue.Catalogue) -> None:
    unknown = [
        name
        for name, recipe in known.recipes.items()
        if known.knowledge.model(recipe.model).token_gb is None
    ]
    assert unknown
    assert {most(known, name) for name in unknown} == {FASTEST_TOK_S}


def test_the_bound_is_that_of_the_hosts_own_memory(known: catalogue.Catalogue) -> None:
    """On an H200 every fast model was suspect, by the figure of a Spark."""
    h200 = replace(
        known.knowledge.hardware["dgx-spark"],
        compute_capability="9.0",
        bandwidth_gb_s=replace(known.knowledge.hardware["dgx-spark"].bandwidth_gb_s, value=4800),
    )
    hardware = {**known.knowledge.hardware, "h200": h200}
    both = replace(known, knowledge=replace(known.knowledge, hardware=hardware))
    recipe = both.recipes[MISTRAL]
    assert ceiling(recipe, Serving(), both.knowledge, "9.0") == pytest.approx(
        most(both) * 4800 / 273
    )
    assert ceiling(recipe, Serving(), both.knowledge, "10.0") is None
