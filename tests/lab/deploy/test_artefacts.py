"""Recipes that the engine refuses, and images and weights that differ from their pins."""

import json
import re
from pathlib import Path

import pytest
from stack import REPOSITORY, Host

from lab import RECIPES
from lockstep.lock import lockfile
from lockstep.onhost.docker.docker_api import hold_tag

TINY = REPOSITORY / "lab" / "recipes" / "tiny-qwen3.yaml"
TAGS = "docker images --format '{{.Repository}}:{{.Tag}}' | grep ':lockstep-'"
QWEN = "/data/models/huggingface/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"


# What is changed in the tiny model's recipe → the word that the engine does not know.
ODD = {
    "odd-flag": ("--enforce-eager", "--enforce-eager --no-such-flag 3", "--no-such-flag"),
    "odd-variable": ("VLLM_NO_USAGE_STATS:", "VLLM_NO_SUCH_VARIABLE:", "VLLM_NO_SUCH_VARIABLE"),
}


@pytest.fixture(scope="module")
def refused_deploy(stack, first):
    """The deploy of recipes that the engine refuses; it wrote no unit."""
    host, folder = stack.spark1, stack.folder / "refused-recipes"
    folder.mkdir(exist_ok=True)
    models = {}
    for number, (name, (old, new, _)) in enumerate(ODD.items()):
        text = TINY.read_text(encoding="utf-8")
        assert old in text
        (folder / f"{name}.yaml").write_text(text.replace(old, new), encoding="utf-8")
        models[name] = {"recipe": name, "unit": name, "port": 8100 + number}
    odd = stack.inventory("odd", recipe_folders=(RECIPES, str(folder)), models=models)
    earlier_units = units(host)
    result = stack.deploy("-y", "--limit", "spark1", inventory=odd)
    assert units(host) == earlier_units
    return result


def test_what_the_engine_does_not_know_stops_the_deploy_before_a_unit_is_written(refused_deploy):
    assert refused_deploy.code == 1
    closing = " ".join(refused_deploy.closing.split())
    assert "FAILED spark1: Engine check | Ask the engine" in closing
    for name, (_, _, word) in ODD.items():
        assert re.search(rf"recipe {name}: vLLM 0\.32\.1\S* [^!]{{1,60}} {word}", closing)


def test_the_next_deploy_asks_no_engine_again_and_brings_tags_and_weights_that_were_gone(
    refused_deploy, deployed_stack, lab_host
):
    # Images of earlier tests' recipes have tags until `lockstep gc`; wanted are those of the units.
    images = set(re.findall(r"[\w./:-]+@sha256:[0-9a-f]{64}", units(lab_host)))
    assert [image for image in images if "sglang" in image]
    # As an older Lockstep left them.
    lab_host.root(f"docker rmi $({TAGS} | grep sglang); rm -rf {QWEN}")
    deployed_stack.plant("hub", {"match": r"PrismaQuant.*00001-of", "corrupt": True, "times": 1})
    # A host that is deployed alone copies from no other, so the hub is asked.
    result = deployed_stack.good_deploy("-y", "--limit", "spark1")
    # The files that the refused deploy wrote went with it; its job that failed is reset.
    assert result.changed_operations == {
        "Images | Pull images by digest",
        "Weights | Fetch and verify weights",
    }
    assert "lockstep-job" not in lab_host.root("systemctl list-units --failed --no-legend")
    assert "what came is not what its hash says; fetching it again" in result.output
    checkpoints = lockfile.load(deployed_stack.lock).checkpoints.values()
    pinned_hashes = {
        (Path(file.path).name, file.sha256) for pin in checkpoints for file in pin.files
    }
    lines = lab_host.root(f"cd {QWEN}/snapshots/* && sha256sum *.safetensors").splitlines()
    assert len(lines) == 2
    assert {(line.split()[1], line.split()[0]) for line in lines} <= pinned_hashes
    # A cold model has no container, so nothing but a tag of ours holds its image.
    lab_host.root("docker image prune -f")
    assert set(map(hold_tag, images)) <= set(lab_host.root(TAGS).split())
    lab_host.root(f"docker image inspect {' '.join(images)}")
    drift = deployed_stack.diff("--json", "--limit", "spark1").out
    assert json.loads(drift) and "lockstep-" not in drift


def units(host: Host) -> str:
    """The model units and launchers on the host."""
    return host.root(
        "cat /etc/systemd/system/*.service /data/scripts/*/*-launch.sh /data/scripts/*/switch.sh"
    )
