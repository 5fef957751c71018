"""Stand-in engines behave as the real ones: Mistral's files, and nonsense that is found."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fork import Fork
from lab_servers import ask, free_port, until

from lab.content.standin import engine as standin
from lab.content.standin.corruption import CORRUPTIONS
from lockstep.fit.catalogue import FOLDER
from lockstep.inventory.settings import HostPaths, Settings
from lockstep.lock.pins import CheckpointPin, Pins
from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, sense_check
from lockstep.recipes.recipe_file import Recipe, load_catalogue
from lockstep.units.served_weights import weight_overrides

# Each starts an engine.
pytestmark = pytest.mark.slow


@contextlib.contextmanager
def standin_engine(
    home: Path, name: str, model: str, **knobs: object
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A stand-in engine of that name, and its address; of `knobs`, the rest is 0."""
    port = free_port()
    whole = {"NEED_MODEL": 0, "LOAD_SECONDS": 0, "NEED_MEMORY": 0, **knobs}
    environment = {f"STANDIN_{key}": str(value) for key, value in whole.items()}
    environment |= {"STANDIN_RECORD": str(home / "argv.json"), "HF_HOME": str(home)}
    words = [model] if name == "vllm" else ["--model-path", model]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    with Fork(
        lambda: standin.serve(name, "9.9", [name, *words], words),
        env={"PATH": os.environ["PATH"], "STANDIN_KNOBS_FOLDER": str(home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def sglang(home: Path, model: str, is_old: bool) -> Any:
    """A stand-in of SGLang that needs the model's files, and its address."""
    return standin_engine(home, "sglang", model, NEED_MODEL=1, OLD_MISTRAL_FORMAT=int(is_old))


def wait_until_it_serves(home: Path, model: str, is_old: bool) -> None:
    with sglang(home, model, is_old) as (_, url):
        until(lambda: ask(f"{url}/health").status == 200, "ready")


DEFAULTS = ["mistral-small-4-119b-nvfp4-sglang", "mistral-small-4-119b-nvfp4-sglang-eagle"]
COMMIT = 40 * "a"
OWN = ("params.json", "tokenizer.json", "consolidated-00001-of-00001.safetensors")


def served_model(home: Path, recipe: Recipe) -> str:
    """The model argument that SGLang gets for a recipe, with the files that it finds on a host."""
    settings = Settings("s", {}, paths=HostPaths(models=str(home)))
    draft = recipe.lockstep.draft
    models = (recipe.model, draft.model) if draft else (recipe.model,)
    pins = Pins(checkpoints={name: CheckpointPin("main", COMMIT, ()) for name in models})
    folder = Path(str(weight_overrides(settings, recipe, pins)["model"]))
    folder.mkdir(parents=True)
    for file in (*OWN, *(name for borrow in recipe.lockstep.borrow for name in borrow.files)):
        (folder / file).write_text("x")
    return str(folder)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("name", DEFAULTS)
def test_sglang_loads_mistral_on_both_sides_of_its_change(
    tmp_path: Path, name: str, is_old: bool
) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[name]
    wait_until_it_serves(tmp_path, served_model(tmp_path, recipe), is_old)


def test_sglang_before_its_change_fails_on_a_config(tmp_path: Path) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[DEFAULTS[0]]
    model = served_model(tmp_path, recipe)
    (Path(model) / "config.json").write_text("x")
    with sglang(tmp_path, model, is_old=True) as (process, _):
        assert "w_kc is None" in process.communicate(timeout=180)[0]
    wait_until_it_serves(tmp_path, model, is_old=False)


def judge_start(
    url: str, dice: random.Random, engine: str, corruption: str
) -> sense_check.SenseVerdict:
    """Judge one start of a chosen engine: its test question, and its sense."""
    quirks = {
        "refuse_template": dice.random() < 0.3,
        "refuse_logprobs": dice.random() < 0.3 and corruption != "nan",
        "always_thinks": dice.random() < 0.3,
        "decode_rate": dice.choice((300, 1000, 5000)),
        "corruption": corruption,
    }
    assert ask(f"{url}/standin/knob", quirks).status == 200
    model = config.Model(
        "planted", "planted.service", url, "some/model", 1.0, engine=engine, tools=True
    )
    if corruption != "empty":
        openai_api.ask_test_question(model, None, 60.0)
    return sense_check.judge_engine_sense(model, None)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_corruption_is_found_and_none_is_invented(tmp_path: Path, engine: str) -> None:
    with standin_engine(tmp_path, engine, "some/model") as (_, url):
        until(lambda: ask(f"{url}/health").status == 200, "ready")
        for kind in ("", *CORRUPTIONS, ""):
            verdict = judge_start(url, random.Random(kind), engine, kind)
            expected_state = "nonsense" if kind else "sound"
            assert verdict.state == expected_state, (kind, verdict.words)
