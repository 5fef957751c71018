"""Engines inside images are asked about their recipes before a unit is written, and only once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import REPOSITORY, DeployResult, Host, Stack

from lab import RECIPES

QWEN = REPOSITORY / "catalogue/recipes/qwen3.6-35b-a3b-prismaquant-dflash-k3.yaml"
LAST = "    --language-model-only \\\n"
UNIT = "/etc/systemd/system/vllm-swapping.service"


@pytest.fixture(scope="module")
def refused_deploy(stack: Stack, first: DeployResult) -> Iterator[tuple[DeployResult, str, str]]:
    """A deploy of a recipe with a flag that vLLM 0.32 lacks, and the units before and after."""
    assert first.code == 0, first.output[-8000:]
    recipes = stack.folder / "swapping-recipes"
    recipes.mkdir()
    text = QWEN.read_text()
    assert LAST in text
    (recipes / "swapping.yaml").write_text(
        text.replace(LAST, LAST + "    --disable-log-requests \\\n")
    )
    inventory = stack.inventory(
        "swapping",
        recipe_folders=(RECIPES, str(recipes)),
        models={"swapping": {"recipe": "swapping", "unit": "vllm-swapping", "port": 30009}},
    )
    earlier_units = units(stack.spark1)
    result = stack.deploy("-y", "--limit", "spark1", inventory=inventory)
    yield result, earlier_units, units(stack.spark1)
    stack.good_deploy()


def units(host: Host) -> str:
    """Every unit of the host with the time of its last change."""
    return host.root("find /etc/systemd/system -type f -printf '%p %C@\\n' | sort")


def test_a_removed_flag_stops_the_deploy_with_flag_and_version(
    refused_deploy: tuple[DeployResult, str, str],
) -> None:
    result, _, _ = refused_deploy
    words = " ".join(result.output.split())
    assert result.code == 1
    assert (
        "recipe swapping: vLLM 0.32.0 refuses it: "
        "vllm: error: unrecognized arguments: --disable-log-requests" in words
    )
    assert "Traceback" not in result.output


def test_no_unit_was_written(refused_deploy: tuple[DeployResult, str, str]) -> None:
    _, earlier_units, later_units = refused_deploy
    assert UNIT not in later_units
    assert later_units == earlier_units


def test_a_deploy_that_changes_nothing_runs_no_container(
    refused_deploy: tuple[DeployResult, str, str], deployed_stack: Stack
) -> None:
    assert refused_deploy[0].code == 1
    deployed_stack.good_deploy()
    began = [host.root("date +%s.%N").strip() for host in deployed_stack.hosts]
    assert deployed_stack.good_deploy().changed_operations == set()
    for host, since in zip(deployed_stack.hosts, began, strict=True):
        events_command = (
            f'docker events --since {since} --until "$(date +%s.%N)" --filter event=create'
            " --format '{{.Actor.Attributes.image}}'"
        )
        assert host.root(events_command) == ""


def test_an_engine_that_cannot_be_asked_is_in_table_status_and_plan(
    refused_deploy: tuple[DeployResult, str, str], deployed_stack: Stack
) -> None:
    """The image's engine wants the driver's library when it is imported, as a real one may."""
    assert refused_deploy[0].code == 1
    reason = "SGLang 0.5.24 cannot be imported: libcuda.so.1"
    deployed_stack.good_deploy()
    image = "docker.io/lmsysorg/sglang:needs-gpu"
    inventory = deployed_stack.inventory("unasked", models={"mistral": {"image": image}})
    result = deployed_stack.good_deploy(inventory=inventory)
    closing = " ".join(result.closing.split())
    assert closing.count(f"mistral: the start will tell; {reason}") == 2
    output = deployed_stack.spark1.run("/data/scripts/llm/switch.sh status").out
    assert f"takes the recipe: {reason}" in " ".join(output.split())
    plan = deployed_stack.plan(inventory)
    assert "engine-not-asked" in plan and reason in " ".join(plan.split())
    assert deployed_stack.spark1.switch("mistral").code == 0
    assert deployed_stack.spark1.switch("none").code == 0
    # What answers again is no longer called silent.
    assert "engine not asked" not in deployed_stack.good_deploy().closing
    assert "engine-not-asked" not in deployed_stack.plan()
