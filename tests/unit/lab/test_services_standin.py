"""The files of Mistral that SGLang gets serve before its change and after it.

What else the stand-in engines do like the real ones shows in the lab's tests.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork import Fork
from lab_servers import ask, free_port, until

from lab.content.standin import engine as standin
from lockstep.fit.catalogue import FOLDER
from lockstep.inventory.settings import HostPaths, Settings
from lockstep.lock.pins import CheckpointPin, Pins
from lockstep.recipes.recipe_file import Recipe, load_catalogue
from lockstep.units.served_weights import weight_overrides

# Each starts an engine.
pytestmark = pytest.mark.slow


@contextlib.contextmanager
def sglang(home: Path, model: str, is_old: bool) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A stand-in of SGLang that needs the model's files, and its address."""
    port = free_port()
    knobs = {"NEED_MODEL": 1, "LOAD_SECONDS": 0.1, "OLD_MISTRAL_FORMAT": int(is_old)}
    environment = {f"STANDIN_{name}": str(value) for name, value in knobs.items()}
    environment |= {"STANDIN_RECORD": str(home / "argv.json"), "HF_HOME": str(home)}
    words = ["--model-path", model, "--host", "127.0.0.1", "--port", str(port)]
    with Fork(
        lambda: standin.serve("sglang", "9.9", ["sglang", *words], words),
        env={"PATH": os.environ["PATH"], "STANDIN_KNOBS_FOLDER": str(home), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def wait_until_it_serves(home: Path, model: str, is_old: bool) -> None:
    with sglang(home, model, is_old) as (_, url):
        until(lambda: ask(f"{url}/health").status == 200, "ready")


def snapshot(home: Path, model: str, *files: str) -> None:
    repository = home / "hub" / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    for file in files:
        (repository / "snapshots" / "abc" / file).write_text("x")


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


def test_sglang_before_its_change_fails_on_a_config_or_an_id(tmp_path: Path) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[DEFAULTS[0]]
    folder = Path(served_model(tmp_path, recipe))
    snapshot(tmp_path / "ids", recipe.model, *OWN)
    (folder / "config.json").write_text("x")
    for model, home in ((str(folder), tmp_path), (recipe.model, tmp_path / "ids")):
        with sglang(home, model, is_old=True) as (process, _):
            assert "w_kc is None" in process.communicate(timeout=180)[0]
        wait_until_it_serves(home, model, is_old=False)
