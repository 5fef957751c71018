"""Open WebUI's command: what it is told of the gateway's models."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.inventory.bound_targets import bind
from lockstep.inventory.settings import Settings, TargetData
from lockstep.lock.pins import ImagePin, ModelPin, Pins
from lockstep.recipes.recipe_file import parse
from lockstep.units.model_units import webui_command
from lockstep.units.variants import variants
from tests.unit.units.test_variants import RECIPE

TOOLS = RECIPE.replace("{port}", "{port} --enable-auto-tool-choice --tool-call-parser hermes")
VECTORS = RECIPE.replace("{port}", "{port} --runner pooling")


def told(*recipes: str) -> dict[str, str]:
    """The variables of Open WebUI on a host with a target of each recipe."""
    catalogue = {f"r{number}": parse(text, Path("r.yaml")) for number, text in enumerate(recipes)}
    targets = {
        name: TargetData(recipe=name, unit=f"vllm-{name}", port=8000 + number)
        for number, name in enumerate(catalogue)
    }
    settings = Settings(name="spark", targets=targets)
    image = {settings.webui.image: ImagePin("sha256:" + "1" * 64, "aarch64", 1)}
    pins = Pins(images=image, models={"org/model": ModelPin("main", "a" * 40, ())})
    made = variants(settings, bind(settings, catalogue, {}), pins, engine_id="0" * 12)
    words = webui_command(settings, made, pins)
    pairs = [words[number + 1] for number, word in enumerate(words) if word == "--env"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_a_new_chat_and_what_is_asked_unseen_switch_to_no_model() -> None:
    given = told(TOOLS)
    assert given["OPENAI_API_BASE_URLS"] == "http://127.0.0.1:8090/v1"
    assert (given["DEFAULT_MODELS"], given["TASK_MODEL_EXTERNAL"]) == ("auto", "auto")


@pytest.mark.parametrize(
    ("recipes", "offered"),
    [((TOOLS,), True), ((TOOLS, VECTORS), True), ((RECIPE,), False), ((TOOLS, RECIPE), False)],
)
def test_it_offers_its_tools_where_each_chat_model_takes_them(
    recipes: tuple[str, ...], offered: bool
) -> None:
    metadata = told(*recipes).get("DEFAULT_MODEL_METADATA")
    assert metadata == (None if offered else '{"capabilities":{"builtin_tools":false}}')
