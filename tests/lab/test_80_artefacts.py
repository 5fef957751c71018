"""Recipes that the engine refuses, images and weights that are not what was pinned."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from stack import REPOSITORY, Host, Stack

from lockstep.command import environment, serve_command
from lockstep.recipes import load_catalogue

TINY = REPOSITORY / "lab" / "recipes" / "tiny-qwen3.yaml"
QWEN_IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
CHECK = "/usr/local/lib/lockstep/engine_check.py"
QWEN = "/data/models/huggingface/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("--enforce-eager", "--enforce-eager --no-such-flag 3", "--no-such-flag"),
        ('VLLM_NO_USAGE_STATS: "1"', 'VLLM_NO_SUCH_VARIABLE: "1"', "VLLM_NO_SUCH_VARIABLE"),
    ],
)
def test_what_the_engine_does_not_know_stops_the_deploy_before_the_unit_is_written(
    deployed: Stack, old: str, new: str, word: str
) -> None:
    folder = deployed.folder / "recipes"
    folder.mkdir(exist_ok=True)
    text = TINY.read_text(encoding="utf-8")
    assert old in text
    (folder / "tiny-odd.yaml").write_text(text.replace(old, new), encoding="utf-8")
    inventory = deployed.inventory(
        "odd",
        recipe_folders=("catalogue/recipes", str(folder)),
        targets={"tiny": {"recipe": "tiny-odd"}},
    )
    before = [unit(host) for host in deployed.hosts]
    done = deployed.deploy("-y", inventory=inventory)
    assert done.code == 1
    closing = " ".join(done.closing.split())
    for host in deployed.hosts:
        assert f"FAILED {host.name}: Engine check | Ask the engine" in closing
    assert word in closing and "vLLM 0.32.0" in closing and "tiny-odd" in closing
    assert [unit(host) for host in deployed.hosts] == before
    assert deployed.good_deploy().changed <= {
        "Base | Write folders, programs and settings",
        "Engine check | Ask the engine, then make it the current one",
    }


def test_the_production_recipe_passes_the_parser_of_the_engine_on_the_host(one: Host) -> None:
    recipe = load_catalogue(REPOSITORY / "catalogue" / "recipes")[
        "mistral-small-4-119b-nvfp4-vllm-fork"
    ]
    asked = {
        "id": "test",
        "engine_cuda": None,
        "recipes": [
            {
                "name": recipe.name,
                "argv": serve_command(recipe, engine_version="0.32.0"),
                "environment": environment(recipe, engine_version="0.32.0"),
            }
        ],
    }
    python = "/opt/lockstep/engines/current/venv/bin/python"
    record = "/tmp/engine-check.json"
    answer = one.run(
        f"LOCKSTEP_ENGINE={shlex.quote(json.dumps(asked))} {python} {CHECK} {record}"
        f" && cat {record}"
    )
    assert answer.code == 0, answer.text
    assert '"faults": []' in answer.out


def test_an_image_for_another_architecture_is_refused_by_name(deployed: Stack, one: Host) -> None:
    inventory = deployed.inventory(
        "foreign", targets={"qwen": {"image": f"{QWEN_IMAGE}:arm64-only"}}
    )
    before = unit(one)
    done = deployed.deploy("-y", inventory=inventory)
    said = " ".join(done.output.split())
    assert done.code != 0
    assert "arm64" in said and "amd64" in said and "arm64-only" in said
    assert "Traceback" not in said
    assert unit(one) == before


def test_a_digest_that_is_gone_from_the_registry_is_named_with_its_remedy(
    deployed: Stack, one: Host
) -> None:
    record = yaml.safe_load(deployed.pins.read_text(encoding="utf-8"))
    gone = "sha256:" + "0" * 64
    record["images"][f"{QWEN_IMAGE}:latest"]["digest"] = gone
    other = deployed.folder / "gone.yaml"
    other.write_text(yaml.safe_dump(record), encoding="utf-8")
    before = unit(one)
    done = deployed.deploy("-y", LOCKSTEP_PINS=str(other))
    closing = " ".join(done.closing.split())
    assert done.code == 1
    assert "FAILED spark1: Images | Pull images by digest" in closing
    assert "dgx-vllm-eugr-nightly@sha256:000000000000" in closing
    assert "not found" in closing and "Remedy: nightly tags are pruned" in closing
    assert unit(one) == before


def test_corrupt_bytes_from_the_hub_are_found_and_fetched_again(deployed: Stack, one: Host) -> None:
    one.root(f"rm -rf {QWEN}")
    deployed.plant("hub", {"match": r"PrismaQuant.*00001-of", "corrupt": True, "times": 1})
    try:
        done = deployed.good_deploy()
    finally:
        deployed.plant("hub")
    assert re.search(r"1 corrupt files: \S*00001-of\S*; fetching them again", done.output)
    pinned = {
        Path(file["path"]).name: file["sha256"]
        for model in yaml.safe_load(deployed.pins.read_text(encoding="utf-8"))["models"].values()
        for file in model["files"]
        if "sha256" in file
    }
    listed = one.root(f"cd {QWEN}/snapshots/* && sha256sum *.safetensors").splitlines()
    assert len(listed) == 2
    assert {line.split()[1]: line.split()[0] for line in listed}.items() <= pinned.items()


def test_a_hub_that_serves_only_corrupt_bytes_gives_an_error_and_no_model(
    deployed: Stack, one: Host
) -> None:
    one.root(f"rm -rf {QWEN}")
    deployed.plant("hub", {"match": r"PrismaQuant.*00001-of", "corrupt": True})
    try:
        done = deployed.deploy()
    finally:
        deployed.plant("hub")
    closing = " ".join(done.closing.split())
    assert done.code == 1
    assert "FAILED spark1: Weights | Fetch and verify weights" in closing
    assert "also after fetching them again" in closing and "Remedy: check the disk" in closing
    assert "Done on: spark2" in closing
    deployed.good_deploy()


def unit(host: Host) -> str:
    """The model units and launchers as they are on the host."""
    return host.root(
        "cat /etc/systemd/system/*.service /data/scripts/*/*-launch.sh /data/scripts/*/switch.sh"
    )
