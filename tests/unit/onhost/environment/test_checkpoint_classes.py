"""The classes that load a checkpoint are imported before anything uses an environment."""

import json

import pytest

from tests.unit.onhost.environment.test_engine_check import ENTRY, RECIPE, Venv

# It starts Python, as a host does.
pytestmark = pytest.mark.slow

#: What became of the engine's classes and of transformers.
FILES = {
    # The fork's class of Mistral Small 4 with transformers 5.17, where a name is gone.
    "transformers/pixtral.py": "VisionRotary = object\n",
    "transformers/audio.py": "raise AttributeError('ambiguous head_dim\\nof that model')\n",
    "vllm/models/hears.py": "import transformers.audio\n",
    # vLLM 0.26.0 without FlashAttention.
    "vllm/models/lacks.py": "raise ImportError('vllm.vllm_flash_attn requires (_vllm_fa2_C)')\n",
}
CONFIG, PARAMS = "config.json", "params.json"
SEES, WRITES = {"class": "Sees"}, {"class": "Writes"}
#: Recipe → files of its checkpoint by their names, and what they say where they are here.
CHECKPOINTS = {
    "lacks a name": ([CONFIG, "model.safetensors"], {CONFIG: SEES}),
    "lacks a part": ([CONFIG], {CONFIG: {"class": "Lacks"}}),
    # The part that writes text is imported, too.
    "its text": ([CONFIG], {CONFIG: {**WRITES, "text": "Hears"}}),
    # vLLM runs what it has no class for by that of transformers.
    "unknown": ([CONFIG], {CONFIG: {"class": "Unknown"}}),
    # With weights of Mistral's own names, which are not here yet, params.json is read.
    "by names": (
        [CONFIG, PARAMS, "consolidated-1-of-2.safetensors"],
        {CONFIG: SEES, PARAMS: WRITES},
    ),
    # The flag decides before the names do.
    "by flag": ([CONFIG, PARAMS], {CONFIG: SEES, PARAMS: WRITES}),
    "the owner's": ([], {CONFIG: WRITES}),
    "unreadable": (["model.safetensors"], {}),
    "borrows": ([CONFIG, "w.safetensors"], {}),
}
OTHER = "Remedy: name another transformers (engine.transformers) or another vLLM"
ANEW = "Remedy: build the environment anew, or name another vLLM"
BESIDE = " with transformers 5.17.0"
RENAMED = f"{BESIDE}: cannot import name 'Rotary' from 'transformers.pixtral'. {OTHER}"


def test_the_classes_of_a_checkpoint_are_imported(tmp_path):
    venv = Venv(tmp_path)
    venv.files |= FILES
    model = '        serve.add_argument("model")\n'
    flag = '        serve.add_argument("--config-format")\n'
    venv.files[ENTRY] = venv.files[ENTRY].replace(model, model + flag)
    recipes = {}
    for name, (files, host_files) in CHECKPOINTS.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, content in host_files.items():
            (folder / file).write_text(json.dumps(content))
        checkpoint = [{"folder": str(folder), "files": files}]
        recipes[name] = {**RECIPE, "name": name, "checkpoint": checkpoint}
    recipes["by flag"]["argv"] = [*RECIPE["argv"], "--config-format", "mistral"]
    recipes["borrows"]["checkpoint"] += recipes["lacks a name"]["checkpoint"]
    venv.question["recipes"] = list(recipes.values())
    fault_by_recipe = dict(fault.split(": vLLM 0.19.2 cannot ") for fault in venv.faults())
    unreadable = fault_by_recipe.pop("recipe unreadable")
    assert unreadable.startswith("read the configuration of its checkpoint: ")
    assert fault_by_recipe == {
        "recipe lacks a name": f"import its class Sees{RENAMED}",
        # No other transformers helps.
        "recipe lacks a part": (
            f"import its class Lacks: vllm.vllm_flash_attn requires (_vllm_fa2_C). {ANEW}"
        ),
        "recipe its text": f"import its class Hears{BESIDE}: ambiguous head_dim. {OTHER}",
        # What is borrowed is read from where it is, and takes the place of the recipe's own.
        "recipe borrows": f"import its class Sees{RENAMED}",
    }
