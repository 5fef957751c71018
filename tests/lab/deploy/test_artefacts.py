"""Recipes that the engine refuses, images and weights that are not what was pinned."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import yaml
from stack import REPOSITORY, Host, Stack

from lab import RECIPES
from lab.git.git_content import STALE_BRANCH
from lockstep.fit import catalogue
from lockstep.onhost.docker.docker_api import hold_tag
from lockstep.recipes.command import environment, serve_command

TINY = REPOSITORY / "lab" / "recipes" / "tiny-qwen3.yaml"
QWEN_IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
ENGINES = "/opt/lockstep/engines"
CURRENT = f"{ENGINES}/current"
CHECK = "/usr/local/lib/lockstep engine-check"
SNAPSHOTS = "/data/models/huggingface/hub/models--lab--tiny-qwen3/snapshots/*"
QWEN = "/data/models/huggingface/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"


# What is changed in the tiny model's recipe → the word that the engine does not know.
ODD = {
    "odd-flag": ("--enforce-eager", "--enforce-eager --no-such-flag 3", "--no-such-flag"),
    "odd-variable": ("VLLM_NO_USAGE_STATS:", "VLLM_NO_SUCH_VARIABLE:", "VLLM_NO_SUCH_VARIABLE"),
}


def test_what_the_engine_does_not_know_stops_the_deploy_before_a_unit_is_written(
    deployed: Stack, one: Host
) -> None:
    folder = deployed.folder / "refused-recipes"
    folder.mkdir(exist_ok=True)
    targets = {}
    for number, (name, (old, new, _)) in enumerate(ODD.items()):
        text = TINY.read_text(encoding="utf-8")
        assert old in text
        (folder / f"{name}.yaml").write_text(text.replace(old, new), encoding="utf-8")
        targets[name] = {"recipe": name, "unit": name, "port": 8100 + number}
    inventory = deployed.inventory("odd", recipe_folders=(RECIPES, str(folder)), targets=targets)
    before = units(one)
    done = deployed.deploy("-y", "--limit", "spark1", inventory=inventory)
    assert done.code == 1
    closing = " ".join(done.closing.split())
    assert "FAILED spark1: Engine check | Ask the engine" in closing
    for name, (_, _, word) in ODD.items():
        assert re.search(rf"recipe {name}: vLLM 0\.32\.1\S* [^!]{{1,60}} {word}", closing)
    assert [line for line in done.closing.splitlines() if len(line) > 80] == []
    assert units(one) == before
    # The engine is not asked again what it took before; the job that failed is reset.
    assert deployed.good_deploy().changed == {
        "Base | Write folders, programs and settings",
        "Services | Reload systemd, restart what is outdated",
    }


def test_a_fork_whose_class_cannot_be_imported_stops_the_deploy_before_it_is_current(
    deployed: Stack, one: Host
) -> None:
    """Its class wants a name that the transformers of the lab's index no longer has."""
    inventory = deployed.inventory("stale", engine={"branch": STALE_BRANCH})
    before, current = units(one), one.root(f"readlink {CURRENT}")
    lock = deployed.lock.read_bytes()
    done = deployed.deploy("-y", "--limit", "spark1", inventory=inventory)
    deployed.lock.write_bytes(lock)
    assert done.code == 1
    closing = " ".join(done.closing.split())
    assert "FAILED spark1: Engine check | Ask the engine" in closing
    # The fork says what it descends from: vLLM's own tags are not in it.
    assert re.search(r"recipe tiny-qwen3: vLLM 0\.32\.1\.dev1\+g[0-9a-f]{9}\.cpu cannot", closing)
    assert "its class Qwen3ForCausalLM with transformers 5.19.0: cannot import name" in closing
    assert "'PixtralRotaryEmbedding' from 'transformers.models.pixtral." in closing
    assert (units(one), one.root(f"readlink {CURRENT}")) == (before, current)
    deployed.good_deploy()
    kept = f"! -name {current.strip()} ! -name uv-cache ! -name store"
    one.root(f"find {ENGINES} -mindepth 1 -maxdepth 1 -type d {kept} -exec rm -rf {{}} +")


def test_the_production_recipe_passes_the_parser_of_the_engine_on_the_host(one: Host) -> None:
    recipe = catalogue.load().recipes["mistral-small-4-119b-nvfp4-vllm-fork"]
    # Variables of the fork, which vLLM 0.32 has not (the recipe's engine_versions).
    gone = {"VLLM_NVFP4_GEMM_BACKEND", "VLLM_USE_FLASHINFER_MOE_FP4"}
    asked = {
        "id": "test",
        "engine_cuda": None,
        "waive_kernels": False,
        "recipes": [
            {
                "name": recipe.name,
                "argv": serve_command(recipe),
                "environment": {
                    name: value for name, value in environment(recipe).items() if name not in gone
                },
                # The parser is asked here; the classes are those of the tiny model.
                "checkpoint": [{"folder": one.root(f"ls -d {SNAPSHOTS}").strip(), "files": []}],
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
    before = units(one)
    done = deployed.deploy("-y", inventory=inventory)
    said = " ".join(done.output.split())
    assert done.code != 0
    assert "arm64" in said and "amd64" in said and "arm64-only" in said
    assert "Traceback" not in said
    assert units(one) == before


def test_a_digest_that_is_gone_from_the_registry_is_named_with_its_remedy(
    deployed: Stack, one: Host
) -> None:
    record = yaml.safe_load(deployed.lock.read_text(encoding="utf-8"))
    gone = "sha256:" + "0" * 64
    record["images"][f"{QWEN_IMAGE}:latest"]["digest"] = gone
    other = deployed.folder / "gone.lock.yaml"
    other.write_text(yaml.safe_dump(record), encoding="utf-8")
    before = units(one)
    done = deployed.deploy("-y", inventory=deployed.inventory("gone", lock=str(other)))
    closing = " ".join(done.closing.split())
    assert done.code == 1
    assert "FAILED spark1: Images | Pull images by digest" in closing
    assert "dgx-vllm-eugr-nightly@sha256:000000000000" in closing
    assert "not found" in closing and "Remedy: tags of nightly builds are removed" in closing
    assert units(one) == before


def test_corrupt_bytes_from_the_hub_are_found_and_fetched_again(deployed: Stack, one: Host) -> None:
    one.root(f"rm -rf {QWEN}")
    deployed.plant("hub", {"match": r"PrismaQuant.*00001-of", "corrupt": True, "times": 1})
    try:
        done = deployed.good_deploy(inventory=deployed.inventory("alone", copying=False))
    finally:
        deployed.plant("hub")
    assert "what came is not what its hash says; fetching it again" in done.output
    pinned = {
        Path(file["path"]).name: file["sha256"]
        for model in yaml.safe_load(deployed.lock.read_text(encoding="utf-8"))["models"].values()
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
        done = deployed.deploy(inventory=deployed.inventory("alone", copying=False))
    finally:
        deployed.plant("hub")
    closing = " ".join(done.closing.split())
    assert done.code == 1
    assert "FAILED spark1: Weights | Fetch and verify weights" in closing
    assert "corrupt, also after fetching it again. Remedy: check the disk" in closing
    assert "Done on: spark2" in closing
    deployed.good_deploy()


def units(host: Host) -> str:
    """The model units and launchers as they are on the host."""
    return host.root(
        "cat /etc/systemd/system/*.service /data/scripts/*/*-launch.sh /data/scripts/*/switch.sh"
    )


def test_a_prune_takes_no_cold_models_image_and_a_host_without_tags_gets_them(
    deployed: Stack, one: Host
) -> None:
    """A cold model has no container, so nothing but a tag of ours holds its image."""
    tags = "docker images --format '{{.Repository}}:{{.Tag}}' | grep ':lockstep-'"
    # Images of earlier tests' recipes have tags until `lockstep gc`; wanted are those of the units.
    wanted = set(map(hold_tag, re.findall(r"[\w./:-]+@sha256:[0-9a-f]{64}", units(one))))
    assert wanted <= set(one.root(tags).split())
    assert [tag for tag in wanted if "sglang" in tag]
    # As an older Lockstep left them.
    one.root(f"docker rmi $({tags} | grep sglang)")
    assert deployed.good_deploy().changed >= {"Images | Pull images by digest"}
    assert wanted <= set(one.root(tags).split())
    assert one.switch("qwen").code == 0
    one.root("docker image prune -f")
    assert one.switch("mistral").code == 0
    assert one.switch("none").code == 0
    found = json.loads(deployed.diff("--json", "--limit", "spark1").stdout)
    assert "lockstep-" not in json.dumps(found)
