"""Engines inside images are asked about their recipes before a unit is written, and only once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import REPOSITORY, Deployed, Host, Stack

from lab import RECIPES

QWEN = REPOSITORY / "catalogue/recipes/qwen3.6-35b-a3b-prismaquant-dflash-k3.yaml"
LAST = "    --language-model-only \\\n"
UNIT = "/etc/systemd/system/vllm-swapping.service"


@pytest.fixture(scope="module")
def refused(stack: Stack, first: Deployed) -> Iterator[tuple[Deployed, str, str]]:
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
        targets={"swapping": {"recipe": "swapping", "unit": "vllm-swapping", "port": 30009}},
    )
    before = units(stack.one)
    done = stack.deploy("-y", "--limit", "spark1", inventory=inventory)
    yield done, before, units(stack.one)
    stack.good_deploy()


def units(host: Host) -> str:
    """Every unit of the host with the time of its last change."""
    return host.root("find /etc/systemd/system -type f -printf '%p %C@\\n' | sort")


def test_a_removed_flag_stops_the_deploy_with_flag_and_version(
    refused: tuple[Deployed, str, str],
) -> None:
    done, _, _ = refused
    words = " ".join(done.output.split())
    assert done.code == 1
    assert (
        "recipe swapping: vLLM 0.32.0 refuses it: "
        "vllm: error: unrecognized arguments: --disable-log-requests" in words
    )
    assert "Traceback" not in done.output


def test_no_unit_was_written(refused: tuple[Deployed, str, str]) -> None:
    _, before, after = refused
    assert UNIT not in after
    assert after == before


def test_a_deploy_that_changes_nothing_runs_no_container(
    refused: tuple[Deployed, str, str], deployed: Stack
) -> None:
    assert refused[0].code == 1
    deployed.good_deploy()
    began = [host.root("date +%s.%N").strip() for host in deployed.hosts]
    assert deployed.good_deploy().changed == set()
    for host, since in zip(deployed.hosts, began, strict=True):
        created = (
            f'docker events --since {since} --until "$(date +%s.%N)" --filter event=create'
            " --format '{{.Actor.Attributes.image}}'"
        )
        assert host.root(created) == ""


def test_an_engine_that_cannot_be_asked_is_in_table_status_and_plan(
    refused: tuple[Deployed, str, str], deployed: Stack
) -> None:
    """The image's engine wants the driver's library when it is imported, as a real one may."""
    assert refused[0].code == 1
    reason = "SGLang 0.5.24 cannot be imported: libcuda.so.1"
    deployed.good_deploy()
    image = "docker.io/lmsysorg/sglang:needs-gpu"
    inventory = deployed.inventory("unasked", targets={"mistral": {"image": image}})
    done = deployed.good_deploy(inventory=inventory)
    closing = " ".join(done.closing.split())
    assert closing.count(f"mistral: the start will tell; {reason}") == 2
    said = deployed.one.run("/data/scripts/llm/switch.sh status").out
    assert f"takes the recipe: {reason}" in " ".join(said.split())
    planned = deployed.plan(inventory)
    assert "engine-not-asked" in planned and reason in " ".join(planned.split())
    assert deployed.one.switch("mistral").code == 0
    assert deployed.one.switch("none").code == 0
    # What answers again is no longer called silent.
    assert "engine not asked" not in deployed.good_deploy().closing
    assert "engine-not-asked" not in deployed.plan()
