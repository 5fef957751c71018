"""The classes that load a checkpoint are imported before anything uses an environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.onhost.environment.test_engine_check import ENTRY, RECIPE, Venv

# It starts Python, as a host does.
pytestmark = pytest.mark.slow

#: What became of the engine's classes and of transformers.
FILES = {
    # The fork's class of Mistral Small 4 with transformers 5.17, where a name is gone.
    "transformers/pixtral.py": "VisionRotary = object\n",
    "transformers/audio.py": "raise AttributeError('ambiguous head_dim')\n",
    "vllm/models/hears.py": "import transformers.audio\n",
    "vllm/models/counts.py": "raise RuntimeError('no kernel\\nof that name')\n",
    # vLLM 0.26.0 without FlashAttention.
    "vllm/models/lacks.py": "raise ImportError('vllm.vllm_flash_attn requires (_vllm_fa2_C)')\n",
}
CONFIG, PARAMS = "config.json", "params.json"
MISTRALS = [CONFIG, PARAMS, "consolidated-00001-of-00002.safetensors"]
SEES = {"class": "Sees"}
#: Recipe → files of its checkpoint by their names, what they say where they are here, and flags.
CHECKPOINTS: dict[str, tuple[list[str], dict[str, dict[str, str]], list[str]]] = {
    "lacks a name": ([CONFIG, "model.safetensors"], {CONFIG: SEES}, []),
    "lacks a part": ([CONFIG], {CONFIG: {"class": "Lacks"}}, []),
    "fails within": ([CONFIG], {CONFIG: {"class": "Hears"}}, []),
    "its text": ([CONFIG], {CONFIG: {"class": "Writes", "text": "Counts"}}, []),
    "unknown text": ([CONFIG], {CONFIG: {"class": "Writes", "text": "Unknown"}}, []),
    "unknown": ([CONFIG], {CONFIG: {"class": "Unknown"}}, []),
    "by names": (MISTRALS, {CONFIG: SEES, PARAMS: {"class": "Writes"}}, []),
    "by flag": (
        [CONFIG, PARAMS],
        {CONFIG: SEES, PARAMS: {"class": "Writes"}},
        ["--config-format", "mistral"],
    ),
    "the owner's": ([], {CONFIG: {"class": "Writes"}}, []),
    "unreadable": (["model.safetensors"], {}, []),
}


@pytest.fixture(scope="module")
def recipe_faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The faults that one check finds in all these recipes; none for accepted ones."""
    venv = Venv(tmp_path_factory.mktemp("venv"))
    venv.files |= FILES
    model = '        serve.add_argument("model")\n'
    flag = '        serve.add_argument("--config-format")\n'
    venv.files[ENTRY] = venv.files[ENTRY].replace(model, model + flag)

    def snapshot(name: str, files: list[str], host_files: dict[str, dict[str, str]]) -> Any:
        """One of which the configuration alone is on the host."""
        folder = venv.folder / name
        folder.mkdir()
        for file, content in host_files.items():
            (folder / file).write_text(json.dumps(content))
        return {"folder": str(folder), "files": files}

    recipes = []
    for name, (files, host_files, flags) in CHECKPOINTS.items():
        checkpoint = [snapshot(name, files, host_files)]
        recipes.append({"name": name, "checkpoint": checkpoint, "argv": [*RECIPE["argv"], *flags]})
    own = snapshot("own", [CONFIG, "w.safetensors"], {})
    base = {"folder": str(venv.folder / "lacks a name"), "files": [CONFIG]}
    recipes.append({"name": "borrowed", "checkpoint": [own, base]})
    venv.question["recipes"] = [{**RECIPE, **recipe} for recipe in recipes]
    words = (fault.removeprefix("recipe ").split(": vLLM 0.19.2 ", 1) for fault in venv.faults())
    return {name: fault for name, fault in words}


OTHER = "Remedy: name another transformers (engine.transformers) or another vLLM"
ANEW = "Remedy: build the environment anew, or name another vLLM"
LACKS = "vllm.vllm_flash_attn requires (_vllm_fa2_C)"
ANEW = "Remedy: build the environment anew, or name another vLLM"
BESIDE = " with transformers 5.17.0"
RENAMED = f"{BESIDE}: cannot import name 'Rotary' from 'transformers.pixtral'. {OTHER}"


@pytest.mark.parametrize(
    ("recipe", "fault"),
    [
        ("lacks a name", f"cannot import its class Sees{RENAMED}"),
        # No other transformers helps.
        ("lacks a part", f"cannot import its class Lacks: {LACKS}. {ANEW}"),
        ("fails within", f"cannot import its class Hears{BESIDE}: ambiguous head_dim. {OTHER}"),
        # The part that writes text is imported, too.
        ("its text", f"cannot import its class Counts: no kernel. {ANEW}"),
        ("unknown text", None),
        # vLLM runs what it has no class for by that of transformers.
        ("unknown", None),
        # With weights of Mistral's own names, which are not here yet, params.json is read.
        ("by names", None),
        # It decides before the names do.
        ("by flag", None),
        # It is read from where it is, and takes the place of the recipe's own.
        ("borrowed", f"cannot import its class Sees{RENAMED}"),
        ("the owner's", None),
    ],
)
def test_the_classes_of_a_checkpoint_are_imported(recipe_faults, recipe, fault) -> None:
    assert recipe_faults.get(recipe) == fault
    message = "cannot read the configuration of its checkpoint: "
    assert recipe_faults["unreadable"].startswith(message)
