"""Open WebUI's command: what it is told of the gateway's models."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.inventory.bound_models import bind
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.pins import CheckpointPin, ImagePin, Pins
from lockstep.recipes.recipe_file import parse
from lockstep.units.model_units import webui_command
from lockstep.units.model_variants import variants
from tests.unit.units.test_model_variants import RECIPE

TOOLS = RECIPE.replace("{port}", "{port} --enable-auto-tool-choice --tool-call-parser hermes")
VECTORS = RECIPE.replace("{port}", "{port} --runner pooling")


def webui_variables(*recipes: str) -> dict[str, str]:
    """The variables of Open WebUI on a host with a model of each recipe."""
    catalogue = {f"r{number}": parse(text, Path("r.yaml")) for number, text in enumerate(recipes)}
    models = {
        name: ModelData(recipe=name, unit=f"vllm-{name}", port=8000 + number)
        for number, name in enumerate(catalogue)
    }
    settings = Settings(name="spark", models=models)
    image = {settings.webui.image: ImagePin("sha256:" + "1" * 64, "aarch64", 1)}
    pins = Pins(images=image, checkpoints={"org/model": CheckpointPin("main", "a" * 40, ())})
    host_variants = variants(settings, bind(settings, catalogue, {}), pins, engine_id="0" * 12)
    words = webui_command(settings, host_variants, pins)
    pairs = [words[number + 1] for number, word in enumerate(words) if word == "--env"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_a_new_chat_and_what_is_asked_unseen_switch_to_no_model() -> None:
    variables = webui_variables(TOOLS)
    assert variables["OPENAI_API_BASE_URLS"] == "http://127.0.0.1:8090/v1"
    assert (variables["DEFAULT_MODELS"], variables["TASK_MODEL_EXTERNAL"]) == ("auto", "auto")


@pytest.mark.parametrize(
    ("recipes", "offers_tools"),
    [((TOOLS,), True), ((TOOLS, VECTORS), True), ((RECIPE,), False), ((TOOLS, RECIPE), False)],
)
def test_it_offers_its_tools_where_each_chat_model_takes_them(
    recipes: tuple[str, ...], offers_tools: bool
) -> None:
    metadata = webui_variables(*recipes).get("DEFAULT_MODEL_METADATA")
    assert metadata == (None if offers_tools else '{"capabilities":{"builtin_tools":false}}')
