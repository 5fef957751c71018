"""An engine that somebody else starts becomes a recipe with the same effect."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RecipeError
from lockstep.recipes import adopted_recipe
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import parse


def foreign_engine(argv: str, engine: str = "vllm", **more: Any) -> dict[str, Any]:
    name = {"name": "My_LLM.service", "kind": "unit", "engine": engine, "argv": argv.split()}
    settings = {"environment": {}, "withheld": [], "image": "", "running": True, "mounts": {}}
    return {**name, **settings, **more}


@pytest.mark.parametrize(
    ("engine", "argv", "model"),
    [
        ("vllm", "vllm serve org/M --port 8000 --enforce-eager", "org/M"),
        ("vllm", "vllm serve --model org/M --port 8000", "org/M"),
        ("sglang", "sglang serve --model-path org/M --tp 1", "org/M"),
        ("llamacpp", "llama-server -m /m/x.gguf -c 4096", "/m/x.gguf"),
        ("llamacpp", "llama-server -hf org/M:Q4_K_M -c 4096", "org/M:Q4_K_M"),
    ],
)
def test_the_recipe_starts_the_same(engine: str, argv: str, model: str) -> None:
    engine_facts = foreign_engine(argv, engine, environment={"A": 'b "c"'}, image="ghcr.io/x/y:1")
    item = parse(adopted_recipe.recipe(engine_facts, "spark1"), Path("my-llm.yaml"))
    assert item.engine and item.engine.name == engine and item.model == model
    assert item.container == "ghcr.io/x/y:1" and item.executor_config["entrypoint"] == ""
    assert environment(item)["A"] == 'b "c"'
    flags = [word for word in argv.split() if word.startswith("--") and word != "--model"]
    assert set(flags) <= set(serve_command(item))


def test_json_stays_one_word_and_names_are_plain() -> None:
    hub = {"HF_HOME": "/home/me/.cache/huggingface"}
    engine_facts = foreign_engine(
        "vllm serve org/M --speculative-config", withheld=["HF_TOKEN"], environment=hub
    )
    engine_facts["argv"].append('{"method": "mtp"}')
    text = adopted_recipe.recipe(engine_facts, "spark1")
    assert '{"method": "mtp"}' in serve_command(parse(text, Path("my-llm.yaml")))
    assert "HF_TOKEN" in text and "unit My_LLM.service on spark1, running" in text
    # Where its weights lie is not taken over.
    assert "HF_HOME" not in text and "env:" not in text
    line = '"my-llm": {"recipe": "my-llm", "unit": "my-llm-lockstep"},'
    assert adopted_recipe.model(engine_facts) == line


def test_paths_of_a_container_become_those_of_the_host() -> None:
    engine_facts = foreign_engine(
        "vllm serve /models/a --download-dir=/models/cache/x --served-model-name /mod",
        mounts={"/models": "/srv/llm", "/models/cache": "/var/cache/llm"},
        image="x/y:1",
        environment={"CACHE": "/models/cache"},
    )
    text = adopted_recipe.recipe(engine_facts, "spark1")
    item = parse(text, Path("my-llm.yaml"))
    assert item.model == "/srv/llm/a" and environment(item)["CACHE"] == "/var/cache/llm"
    assert "--download-dir=/var/cache/llm/x" in text and "/mod" in text.split()
    assert "/srv/llm at /models" in text


def test_without_a_model_there_is_no_recipe() -> None:
    with pytest.raises(RecipeError, match="names no model"):
        adopted_recipe.recipe(foreign_engine("vllm serve --port 8000"), "spark1")
