"""Recipes on several Sparks: what `plan` refuses, and the share of each in what it must hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from an_inventory import PAIR, write_inventory
from click.testing import CliRunner

from lockstep.checkpoints.architecture import Architecture, Layers
from lockstep.checkpoints.known_checkpoints import Figure, Knowledge, KnownCheckpoint
from lockstep.cli.main import main
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


def codes(
    body: str,
    hosts: int,
    knowledge: Knowledge | None = None,
    overrides: Any = (),
    version: str | None = None,
) -> set[str]:
    engine = "sglang" if version and version.startswith("0.5") else "vllm"
    case = CommandCase(recipe(body, engine), knowledge or model(), dict(overrides), version, hosts)
    findings = list(cluster_findings(case))
    assert all(finding.severity == "error" and finding.remedy for finding in findings)
    return {finding.code for finding in findings}


JUST_TWO = "min_nodes: 2\nmax_nodes: 2\ndefaults: {tensor_parallel: 2}\n"
FOUR = "min_nodes: 4\ndefaults: {tensor_parallel: 2, pipeline_parallel: 2}\n"
COPIES = "defaults: {data_parallel: 2}\n"
# There it splits the attention of one copy.
ATTENTION = "defaults: {tensor_parallel: 2, data_parallel: 2, enable_dp_attention: true}\n"


@pytest.mark.parametrize(
    ("body", "hosts", "version", "refusals"),
    [
        ("defaults: {tensor_parallel: 2}\n", 1, None, {"needs-cluster"}),
        ("min_nodes: 2\n", 1, None, {"needs-cluster"}),
        ("", 1, None, set()),
        (JUST_TWO, 2, None, set()),
        (JUST_TWO, 4, None, {"cluster-size", "cluster-degree"}),
        (FOUR, 4, None, set()),
        (FOUR, 2, None, {"cluster-size", "cluster-degree"}),
        (JUST_TWO, 2, "0.11.0", {"cluster-engine"}),
        (JUST_TWO, 2, "0.19.2rc1.dev7+gabc", set()),
        (COPIES, 2, None, set()),
        ("defaults: {data_parallel: 2, tensor_parallel: 2}\n", 4, None, {"cluster-copies"}),
        (COPIES, 2, "0.5.23", {"cluster-copies"}),
        (ATTENTION, 2, "0.5.23", set()),
    ],
)
def test_sparks_and_engine_must_be_those_that_a_recipe_is_for(
    body: str, hosts: int, version: str | None, refusals: set[str]
) -> None:
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
def test_heads_that_cannot_be_shared_evenly_are_refused(
    degree: int, kv_heads: int, heads: int | None, is_refused: bool
) -> None:
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
        assert answer.sequence_gib is not None
        return answer.hosts, round(answer.terms[0].gib, 2), round(answer.sequence_gib, 2)

    whole, cache = 93.13, 16.0
    half = 46.57
    assert shares("tensor_parallel: 2") == (2, half, cache / 2)
    assert shares("pipeline_parallel: 2") == (2, half, cache / 2)
    assert shares("tensor_parallel: 2, pipeline_parallel: 2") == (4, 23.28, cache / 4)
    # A copy each: nothing is shared.
    assert shares("data_parallel: 2") == (2, whole, cache)


def plan_document(folder: Path, **more: object) -> dict[str, Any]:
    """The plan of the pair, with more data of its model."""
    hosts = {
        name: {**host, "models": {"all": {**host["models"]["all"], **more}}}
        for name, host in PAIR.items()
    }
    path = write_inventory(folder, hosts)
    result = CliRunner().invoke(main, ["plan", "-i", str(path), "--json"])
    document: dict[str, Any] = json.loads(result.output)
    return document


def test_plan_shows_who_answers_and_refuses_a_model_without_its_cluster(tmp_path: Path) -> None:
    pair_plan = plan_document(tmp_path)
    first, second = (host["models"][0] for host in pair_plan["hosts"])
    assert (first["cluster"], first["rank"], first["address"]) == ("pair", 0, "127.0.0.1:30005")
    assert (second["cluster"], second["rank"], second["address"]) == ("pair", 1, "at rank 0")
    assert first["fit"]["hosts"] == 2
    assert "needs-cluster" not in {item["code"] for item in pair_plan["findings"]}
    alone = plan_document(tmp_path, cluster=None)
    [finding] = [item for item in alone["findings"] if item["code"] == "needs-cluster"]
    assert finding["subject"].startswith("spark-1.local, spark-2.local: all")
