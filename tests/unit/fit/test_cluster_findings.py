"""Recipes on several Sparks: what `plan` refuses, and the share of each in what it must hold."""

from pathlib import Path

import pytest

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import Figure, Knowledge, KnownCheckpoint
from lockstep.fit import catalogue as catalogues
from lockstep.fit.cluster_findings import cluster_findings
from lockstep.fit.command_checks import CommandCase
from lockstep.fit.fit import fit
from lockstep.recipes import recipe_file
from lockstep.recipes.sizing import serving

CATALOGUE = catalogues.load()
KNOWN = CATALOGUE.knowledge
HEAD = "model: org/model\ncontainer: some/image:1\nlockstep: {engine: %s, moe: true}\n"


def recipe(body: str = "", engine: str = "vllm") -> recipe_file.Recipe:
    return recipe_file.parse(HEAD % engine + body, Path("some.yaml"))


def model(kv_heads: int = 8, heads: int | None = None, layers: int = 32) -> Knowledge:
    """The known facts of the one model: its heads, 100 GB of weights."""
    shapes = (Layers("full", layers, kv_heads=kv_heads, head_dim=128),)
    model_facts = KnownCheckpoint(
        "org/model",
        weights_gb=Figure("weights", 100.0, "GB", "a test", "2026-11-21", "quoted"),
        architecture=Architecture(shapes, 131072, heads),
    )
    return Knowledge({"org/model": model_facts}, KNOWN.hardware)


def codes(body: str, hosts: int, knowledge=None, overrides=(), version: str = "") -> set[str]:
    engine = "sglang" if version.startswith("0.5") else "vllm"
    case = CommandCase(
        recipe(body, engine), knowledge or model(), dict(overrides), version or None, hosts
    )
    return {finding.code for finding in cluster_findings(case) if finding.severity == "error"}


JUST_TWO = "min_nodes: 2\nmax_nodes: 2\ndefaults: {tensor_parallel: 2}\n"
FOUR = "min_nodes: 4\ndefaults: {tensor_parallel: 2, pipeline_parallel: 2}\n"
COPIES = "defaults: {data_parallel: 2}\n"
# There it splits the attention of one copy.
ATTENTION = "defaults: {tensor_parallel: 2, data_parallel: 2, enable_dp_attention: true}\n"


@pytest.mark.parametrize(
    ("body", "hosts", "version", "refusals"),
    [
        ("defaults: {tensor_parallel: 2}\n", 1, "", {"needs-cluster"}),
        ("min_nodes: 2\n", 1, "", {"needs-cluster"}),
        ("", 1, "", set()),
        (JUST_TWO, 2, "", set()),
        (JUST_TWO, 4, "", {"cluster-size", "cluster-degree"}),
        (FOUR, 4, "", set()),
        (FOUR, 2, "", {"cluster-size", "cluster-degree"}),
        (JUST_TWO, 2, "0.11.0", {"cluster-engine"}),
        (JUST_TWO, 2, "0.19.2rc1.dev7+gabc", set()),
        (COPIES, 2, "", set()),
        ("defaults: {data_parallel: 2, tensor_parallel: 2}\n", 4, "", {"cluster-copies"}),
        (COPIES, 2, "0.5.23", {"cluster-copies"}),
        (ATTENTION, 2, "0.5.23", set()),
    ],
)
def test_sparks_and_engine_must_be_those_that_a_recipe_is_for(body, hosts, version, refusals):
    assert codes(body, hosts, version=version) == refusals


def test_the_words_of_the_inventory_count_and_ray_is_refused_by_name() -> None:
    assert codes(JUST_TWO, 4, overrides={"tensor_parallel": 4}) == {"cluster-size"}
    command = "command: vllm serve {model} --tensor-parallel-size 2 --distributed-executor-backend"
    own = {"distributed_executor_backend": "mp"}
    assert codes(f"{command} ray\n", 2, overrides=own) == {"cluster-ray"}
    assert codes(f"{command} mp\n", 2) == set()


@pytest.mark.parametrize(
    ("degree", "kv_heads", "heads", "is_refused"),
    [
        (2, 8, 64, False),
        # Each KV head on two of four.
        (4, 2, 32, False),
        # Three Sparks: eight heads are not three shares.
        (3, 8, None, True),
        (3, 3, 24, False),
        # KV heads would do; attention heads do not.
        (4, 2, 30, True),
    ],
)
def test_heads_that_cannot_be_shared_evenly_are_refused(degree, kv_heads, heads, is_refused):
    body = f"defaults: {{tensor_parallel: {degree}}}\n"
    finding_codes = codes(body, degree, model(kv_heads, heads))
    assert finding_codes == ({"cluster-heads"} if is_refused else set())


def test_more_sparks_than_layers_are_refused() -> None:
    body = "defaults: {pipeline_parallel: 4}\n"
    assert codes(body, 4, model(layers=3)) == {"cluster-layers"}
    # Of an unknown model nobody knows how many it has.
    assert codes(body, 4, KNOWN) == set()


def test_each_way_to_share_leaves_its_part_of_weights_and_cache_on_a_spark() -> None:
    def shares(body: str) -> tuple[int, float, float]:
        item = recipe(f"defaults: {{max_model_len: 131072, {body}}}\n")
        answer = fit(item, model(), asked=serving(item))
        return answer.hosts, round(answer.terms[0].gib, 2), round(answer.sequence_gib, 2)

    assert shares("tensor_parallel: 2") == (2, 46.57, 8.0)
    assert shares("pipeline_parallel: 2") == (2, 46.57, 8.0)
    assert shares("tensor_parallel: 2, pipeline_parallel: 2") == (4, 23.28, 4.0)
    # A copy each: nothing is shared.
    assert shares("data_parallel: 2") == (2, 93.13, 16.0)
