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


@pytest.fixture(scope="module")
def loaded_catalogue() -> catalogue.Catalogue:
    return catalogue.load(catalogue.FOLDER)


def most(loaded_catalogue: catalogue.Catalogue, recipe: str = MISTRAL, **serving: int) -> float:
    ceiling_tok_s = ceiling(
        loaded_catalogue.recipes[recipe], Serving(**serving), loaded_catalogue.knowledge, SPARK
    )
    assert ceiling_tok_s is not None
    return ceiling_tok_s


def test_one_spark_reads_273_gb_in_a_second(loaded_catalogue: catalogue.Catalogue) -> None:
    read = loaded_catalogue.knowledge.checkpoint(loaded_catalogue.recipes[MISTRAL].model).token_gb
    assert read is not None
    assert most(loaded_catalogue) == pytest.approx(273 / float(read.value))


def test_each_drafted_token_may_be_taken(loaded_catalogue: catalogue.Catalogue) -> None:
    assert most(loaded_catalogue, draft_tokens=3) == pytest.approx(4 * most(loaded_catalogue))


def test_hosts_that_split_each_layer_read_at_the_same_time(
    loaded_catalogue: catalogue.Catalogue,
) -> None:
    assert most(loaded_catalogue, tensor_parallel=2) == pytest.approx(2 * most(loaded_catalogue))
    assert most(loaded_catalogue, pipeline_parallel=2, data_parallel=2) == pytest.approx(
        most(loaded_catalogue)
    )


def test_without_a_figure_anything_possible_is_allowed(
    loaded_catalogue: catalogue.Catalogue,
) -> None:
    unknown = [
        name
        for name, recipe in loaded_catalogue.recipes.items()
        if loaded_catalogue.knowledge.checkpoint(recipe.model).token_gb is None
    ]
    assert unknown
    assert {most(loaded_catalogue, name) for name in unknown} == {FASTEST_TOK_S}


def test_the_bound_is_that_of_the_hosts_own_memory(loaded_catalogue: catalogue.Catalogue) -> None:
    """On an H200 every fast model was suspect, by the figure of a Spark."""
    h200 = replace(
        loaded_catalogue.knowledge.hardware["dgx-spark"],
        compute_capability="9.0",
        bandwidth_gb_s=replace(
            loaded_catalogue.knowledge.hardware["dgx-spark"].bandwidth_gb_s, value=4800
        ),
    )
    hardware = {**loaded_catalogue.knowledge.hardware, "h200": h200}
    wider_catalogue = replace(
        loaded_catalogue, knowledge=replace(loaded_catalogue.knowledge, hardware=hardware)
    )
    recipe = wider_catalogue.recipes[MISTRAL]
    assert ceiling(recipe, Serving(), wider_catalogue.knowledge, "9.0") == pytest.approx(
        most(wider_catalogue) * 4800 / 273
    )
    assert ceiling(recipe, Serving(), wider_catalogue.knowledge, "10.0") is None
