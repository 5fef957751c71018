"""The most tokens a second of one stream: the memory's bandwidth over the bytes a token reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.bench.ruler import FASTEST_TOK_S
from lockstep.bench.subject import ceiling
from lockstep.fit import catalogue
from lockstep.recipes.sizing import Serving

SPARK = "12.1"
MISTRAL = "mistral-small-4-119b-nvfp4-sglang-eagle"


CATALOGUE = catalogue.load(catalogue.FOLDER)


def most(recipe: str = MISTRAL, **serving: int) -> float:
    most_tok_s = ceiling(CATALOGUE.recipes[recipe], Serving(**serving), CATALOGUE.knowledge, SPARK)
    assert most_tok_s is not None
    return most_tok_s


def test_one_spark_reads_273_gb_in_a_second_and_each_drafted_token_may_be_taken() -> None:
    read = CATALOGUE.knowledge.checkpoint(CATALOGUE.recipes[MISTRAL].model).token_gb
    assert read is not None
    assert most() == pytest.approx(273 / float(read.value))
    assert most(draft_tokens=3) == pytest.approx(4 * most())


def test_hosts_that_split_each_layer_read_at_the_same_time() -> None:
    assert most(tensor_parallel=2) == pytest.approx(2 * most())
    assert most(pipeline_parallel=2, data_parallel=2) == pytest.approx(most())


def test_without_a_figure_anything_possible_is_allowed() -> None:
    knowledge = CATALOGUE.knowledge
    recipes = CATALOGUE.recipes.items()
    unknown = [name for name, recipe in recipes if not knowledge.checkpoint(recipe.model).token_gb]
    assert unknown and {most(name) for name in unknown} == {FASTEST_TOK_S}


def test_the_bound_is_that_of_the_hosts_own_memory() -> None:
    """On an H200 every fast model was suspect, by the figure of a Spark."""
    spark = CATALOGUE.knowledge.hardware["dgx-spark"]
    bandwidth = replace(spark.bandwidth_gb_s, value=4800)
    h200 = replace(spark, compute_capability="9.0", bandwidth_gb_s=bandwidth)
    hardware = {**CATALOGUE.knowledge.hardware, "h200": h200}
    knowledge = replace(CATALOGUE.knowledge, hardware=hardware)
    recipe = CATALOGUE.recipes[MISTRAL]
    assert ceiling(recipe, Serving(), knowledge, "9.0") == pytest.approx(most() * 4800 / 273)
    assert ceiling(recipe, Serving(), knowledge, "10.0") is None
