"""Recognise a mixture of experts when the recipe does not name it so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep.deploy import plan
from lockstep.fit import catalogue as catalogues
from lockstep.fit.recipe_checks import check
from lockstep.host.desired_state import DesiredState
from lockstep.lock.pins import CheckpointPin
from lockstep.recipes import recipe_file
from lockstep.units.model_variants import variants

KNOWN = catalogues.load()

UNSTATED = """
recipe_version: "2"
model: org/NAME
runtime: vllm
container: ghcr.io/a/b:v1
defaults: {host: 127.0.0.1, port: 8000, gpu_memory_utilization: 0.5}
command: |
  vllm serve {model} --host {host} --port {port} \\
    --gpu-memory-utilization {gpu_memory_utilization}
"""


@pytest.mark.parametrize(
    ("experts", "guard"),
    [("quantised", "marlin"), ("plain", "triton"), ("none", None), (None, None)],
)
def test_the_lock_decides_where_nobody_states_whether_there_are_experts(
    experts: Any, guard: str | None
) -> None:
    """By what the checkpoint's config.json says, in the plan and in the unit alike."""
    recipe = recipe_file.parse(UNSTATED, Path("unstated.yaml"))
    first = spark()
    model = replace(first.models[0], recipe=recipe, fallback=None, image="ghcr.io/a/b:v1")
    host = replace(first, models=(model,))
    pins = replace(
        pins_for(host),
        checkpoints={"org/NAME": CheckpointPin("main", 40 * "a", (), experts=experts)},
    )
    codes = {item.code for item in plan.plan_hosts([host], pins, KNOWN).findings}
    assert ("guard-unknown" in codes) is (experts is None)
    assert not {"cannot-run", "freezing-backend"} & codes
    desired_state = DesiredState(host, pins)
    [variant] = variants(desired_state.plan.settings, desired_state.plan.models, pins, engine_id="")
    argv = list(variant.argv)
    assert (argv[argv.index("--moe-backend") + 1] if "--moe-backend" in argv else None) == guard


def test_recipes_of_the_same_checkpoint_say_it_too() -> None:
    text = UNSTATED.replace("org/NAME", "mistralai/Mistral-Small-4-119B-2603-NVFP4")
    recipe = recipe_file.parse(text, Path("unstated.yaml"))
    assert "guard-unknown" not in {item.code for item in check(recipe, KNOWN)}
    other_recipe = recipe_file.parse(UNSTATED, Path("unstated.yaml"))
    assert "guard-unknown" in {item.code for item in check(other_recipe, KNOWN)}
