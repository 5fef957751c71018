"""A made-up host on the internet for the render tests, and all its artefacts.

Behind a proxy, with mirrors of its own, is the pair of `tests/render/pair.py`.
"""

import re
from functools import cache
from pathlib import Path

from a_spark import environment

from lockstep.files.managed_file import PROGRAMS, ManagedFile
from lockstep.inventory.bound_models import GATEWAY_TOOLS, BoundModel, bind
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.packages import tool_sets
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.onhost.core.config import Minimum
from lockstep.recipes.recipe_file import load_catalogue
from lockstep.units.all_files import deployed_files

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = REPOSITORY / "tests/render/golden"

QWEN = ModelData(
    recipe="qwen3.6-35b-a3b-prismaquant-dflash-k3",
    unit="vllm-qwen36",
    launcher="/data/scripts/vllm/qwen36-launch.sh",
    scripts=("/data/scripts/vllm/qwen36-PRODUCTION.sh",),
)
MISTRAL = ModelData(
    recipe="mistral-small-4-119b-nvfp4-sglang-eagle",
    fallback="mistral-small-4-119b-nvfp4-sglang",
    unit="sglang-mistral4",
    scripts=("/data/scripts/llm/start-mistral.sh",),
    minimum=Minimum(decode_tok_s=29.0, not_below="90 %"),
)
FORK = ModelData(recipe="mistral-small-4-119b-nvfp4-vllm-fork", unit="vllm")

HOSTS = {
    "spark": Settings(
        name="spark",
        models={"qwen": QWEN, "mistral": MISTRAL, "mistral-vllm": FORK},
        packages=("earlyoom", "git"),
        sysctls={"vm.swappiness": "10"},
        boot="mistral",
        tools={name: name for name in GATEWAY_TOOLS},
    ),
}


def bound_models(settings: Settings) -> tuple[BoundModel, ...]:
    """The models of a host with recipes of the real catalogue."""
    return bind(settings, load_catalogue(REPOSITORY / "catalogue/recipes"), {})


def pins(settings: Settings, models: tuple[BoundModel, ...]) -> Pins:
    """A made-up pin for each image and checkpoint that these models name."""
    images = {settings.webui.image}
    checkpoints = set()
    for model in models:
        for recipe in model.recipes:
            block = recipe.lockstep
            if image := model.image_of(recipe):
                images.add(image)
            checkpoints |= {recipe.model, *(borrow.model for borrow in block.borrow)}
            checkpoints |= {block.draft.model} if block.draft else set()
    return Pins(
        python={
            packages.key: environment(packages, f"1.{index}")
            for index, packages in enumerate(tool_sets(settings))
        },
        images={
            name: ImagePin("sha256:" + f"{index:x}" * 64, "aarch64", 1)
            for index, name in enumerate(sorted(images))
        },
        checkpoints={
            name: CheckpointPin("main", f"{index:x}" * 40, ())
            for index, name in enumerate(sorted(checkpoints))
        },
    )


@cache
def rendered_files(host: str) -> dict[str, ManagedFile]:
    """Path → artefact of one of `HOSTS`, without the programs of this repository."""
    plan = HostPlan(host, HOSTS[host], bound_models(HOSTS[host]))
    files = deployed_files(plan, pins(plan.settings, plan.models), engine_id="0123456789ab")
    return {file.path: file for file in files if not file.path.startswith(f"{PROGRAMS}/")}


def steady(text: str) -> str:
    """A unit's text without what changes with every change of a program that it imports."""
    if any(
        f"lib/lockstep {name}" in text for name in ("cluster-agent", "memory-minimum", "gateway")
    ):
        return re.sub(r"(LOCKSTEP_RESTART_KEY)=\w+", r"\1=PROGRAMS", text)
    return text
