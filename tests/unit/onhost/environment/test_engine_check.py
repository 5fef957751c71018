"""The engine itself is asked: a stand-in vLLM with its own parser and environment registry."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onhost_fakes import run_program

from lockstep.host.specs import engine_check_hash
from lockstep.onhost.core import unified_memory
from lockstep.onhost.environment.engine_check import (
    flashinfer_versions_fault,
    kernel_obstacle,
    torch_build_fault,
)

# Each starts Python, as a host does.
pytestmark = pytest.mark.slow

EMPTY = (
    *("vllm/entrypoints", "vllm/entrypoints/cli", "vllm/utils", "vllm/models", "transformers"),
    *("vllm/transformers_utils", "vllm/vllm_flash_attn"),
)
# Compiled parts by their names; what is imported is the folder of that name, which comes first.
COMPILED = ("_C", "_moe_C_stable_libtorch", "vllm_flash_attn/_vllm_fa2_C")
VLLM = {
    **{f"{folder}/__init__.py": "" for folder in EMPTY},
    **{f"vllm/{part}{end}": "" for part in COMPILED for end in (".abi3.so", "/__init__.py")},
    "vllm/__init__.py": """\
import importlib
class Registered:
    def __init__(self, module, name):
        self.module, self.name = module, name
    def load_model_cls(self):
        return getattr(importlib.import_module(self.module), self.name)
class ModelRegistry:
    names = ("Sees", "Writes", "Hears", "Lacks")
    models = {name: Registered(f"vllm.models.{name.lower()}", name) for name in names}
""",
    "vllm/plugins.py": "def load_general_plugins():\n    pass\n",
    "vllm/transformers_utils/config.py": """\
import json, struct
from pathlib import Path
from types import SimpleNamespace
def get_config(model, trust_remote_code, config_format):
    folder = Path(model)
    weights = sorted(folder.glob("consolidated*.safetensors"))
    if config_format == "auto":
        config_format = "mistral" if weights else "hf"
    for file in weights:
        (length,) = struct.unpack("<Q", file.read_bytes()[:8])
        json.loads(file.read_bytes()[8 : 8 + length])
    name = {"mistral": "params.json", "hf": "config.json"}[config_format]
    said = json.loads((folder / name).read_text())
    text = said.get("text")
    text = SimpleNamespace(architectures=[text]) if text else None
    experts = said.get("experts", 0)
    return SimpleNamespace(architectures=[said["class"]], text_config=text, num_experts=experts)
""",
    "vllm/models/sees.py": "from transformers.pixtral import Rotary\nSees = object\n",
    "vllm/models/writes.py": "Writes = object\n",
    "transformers/pixtral.py": "Rotary = object\n",
    "vllm/envs.py": """\
import os
environment_variables = {
    "VLLM_NO_USAGE_STATS": lambda: os.environ.get("VLLM_NO_USAGE_STATS"),
    "VLLM_PORT": lambda: int(os.environ["VLLM_PORT"]),
}
""",
    "vllm/entrypoints/cli/serve.py": """\
class Serve:
    def subparser_init(self, commands):
        serve = commands.add_parser("serve")
        serve.add_argument("model")
        serve.add_argument("--port", type=int)
        serve.add_argument("--moe-backend", choices=["auto", "triton", "marlin"])
        return serve
    def validate(self, parsed):
        if parsed.port == 1:
            raise ValueError("port 1 is taken")
def cmd_init():
    return [Serve()]
""",
    "vllm/utils/argparse_utils.py": (
        "from argparse import ArgumentParser as FlexibleArgumentParser\n"
    ),
    "torch/__init__.py": "from torch import cuda, version\n__version__ = '2.10.0+cu130'\n",
    "torch/version.py": "cuda = '13.0'\n",
    "torch/cuda.py": "def is_available():\n    return False\n",
}
ENTRY = "vllm/entrypoints/cli/serve.py"
# vLLM before its parser moved (0.11).
OLD_PARSER = {
    "vllm/utils/argparse_utils.py": "raise ImportError('not here')\n",
    "vllm/utils/__init__.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
}
MODEL_LINE = '        serve.add_argument("model")\n'
DEVICE_CHECK = """\
        from vllm.platforms import current_platform
        if not current_platform.device_type:
            raise RuntimeError("Failed to infer device type")
"""
# vLLM 0.32 infers a device for its defaults, and raises where it finds none.
NEEDS_DEVICE = {
    "vllm/platforms.py": "class current_platform:\n    device_type = ''\n",
    ENTRY: VLLM[ENTRY].replace(MODEL_LINE, DEVICE_CHECK + MODEL_LINE),
}
VERSIONS = {
    "vllm": "0.19.2",
    "torch": "2.10.0+cu130",
    "transformers": "5.17.0",
    "flashinfer-python": "0.6.1",
    "flashinfer-cubin": "0.6.1",
    "flashinfer-jit-cache": "0.6.1+cu130",
}
RECIPE = {
    "name": "mistral",
    "argv": ["vllm", "serve", "a/b", "--port", "8000"],
    "environment": {"VLLM_NO_USAGE_STATS": "1", "HF_HOME": "/data"},
}


class Venv:
    """The installed packages, and the answer to a question about them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files, self.versions, self.demands = dict(VLLM), dict(VERSIONS), {}
        self.question: dict[str, Any] = {"id": "abc", "engine_cuda": "13", "waive_kernels": False}
        self.question["recipes"] = [RECIPE]
        self.output = ""
        (folder / "checkpoint").mkdir()
        self.write_config("Sees", text="Writes")

    def write_config(self, name: str, **settings: Any) -> None:
        """Write the checkpoint's configuration."""
        (self.folder / "checkpoint/config.json").write_text(json.dumps({"class": name, **settings}))

    def ask(self) -> tuple[int, Any, str]:
        """Exit code, record, and what was said on stderr."""
        whole = [{"folder": str(self.folder / "checkpoint"), "files": []}]
        recipes = [{"checkpoint": whole, **recipe} for recipe in self.question["recipes"]]
        self.question = {**self.question, "recipes": recipes}
        files = dict(self.files)
        for name, version in self.versions.items():
            info = f"{name.replace('-', '_')}-{version}.dist-info/METADATA"
            files[info] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            files[info] += self.demands.get(name, "")
        for name, text in files.items():
            path = self.folder / "site" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        record = self.folder / "check.json"
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "site"),
            "LOCKSTEP_ENGINE": json.dumps(self.question),
        }
        result = run_program("engine-check", str(record), environment=environment)
        self.output = result.stdout
        return result.returncode, json.loads(record.read_text()), result.stderr

    def faults(self) -> list[str]:
        """The faults on record, for which the check ends with 1 and a line each."""
        code, record, output = self.ask()
        faults: list[str] = record["faults"]
        assert (code, output) == (1, "".join(f"engine check: {fault}\n" for fault in faults))
        return faults


@pytest.fixture
def venv(tmp_path):
    return Venv(tmp_path)


@pytest.mark.parametrize("moved_files", [{}, OLD_PARSER, NEEDS_DEVICE])
def test_an_engine_that_takes_every_recipe_has_no_fault(venv, moved_files):
    venv.files |= moved_files
    # No recipe needs this part.
    del venv.files["vllm/_moe_C_stable_libtorch.abi3.so"]
    guarded_argv = [*RECIPE["argv"], "--moe-backend", "marlin"]
    venv.question["recipes"] = [RECIPE, {**RECIPE, "name": "guarded", "argv": guarded_argv}]
    code, record, output = venv.ask()
    assert (code, output) == (0, "")
    assert record == {
        "asked": engine_check_hash(venv.question),
        "version": "0.19.2",
        "torch": "2.10.0+cu130",
        "cuda": "13.0",
        "flashinfer": {name: VERSIONS[name] for name in VERSIONS if name.startswith("flash")},
        "agreed": {},
        "unasked": ["no GPU is seen: matrix product, normalisation, sampler, attention FLASH_ATTN"],
        **{"waived": [], "faults": [], "taken": []},
    }


def test_each_recipe_is_refused_with_the_flag_and_the_version_and_a_good_one_is_not(venv):
    # What a recipe asks for beside the rest, and why the engine does not take it.
    refusals = [
        (
            {"argv": ["vllm", "serve", "a/b", "-x"]},
            "refuses it: vllm: error: unrecognized arguments: -x",
        ),
        ({"argv": ["vllm", "serve", "a/b", "--port", "1"]}, "refuses it: port 1 is taken"),
        ({"environment": {"VLLM_NONE": "1"}}, "does not know the variable VLLM_NONE"),
        (
            {"environment": {"VLLM_PORT": "eighty"}},
            "refuses the value of VLLM_PORT: invalid literal for int() with base 10: 'eighty'",
        ),
    ]
    wrong = [{**RECIPE, "name": str(n), **change} for n, (change, _) in enumerate(refusals)]
    venv.question["recipes"] = [{**RECIPE, "name": "good"}, *wrong]
    # Every fault is told at once.
    venv.files["torch/version.py"] = "cuda = None\n"
    venv.versions["flashinfer-cubin"] = "0.5.0"
    flashinfer, torch, *recipes = venv.faults()
    assert flashinfer.startswith("the FlashInfer packages do not agree: flashinfer-python 0.6.1, ")
    assert torch.startswith("torch 2.10.0+cu130 is a CPU build, expected CUDA 13: it came from the")
    assert recipes == [f"recipe {n}: vLLM 0.19.2 {fault}" for n, (_, fault) in enumerate(refusals)]


def test_an_environment_without_vllm_has_one_fault(venv):
    del venv.versions["vllm"]
    assert venv.faults() == ["vllm is not installed"]


@pytest.mark.parametrize(
    ("file", "name"), [("torch/__init__.py", "torch 2.10.0+cu130"), ("vllm/envs.py", "vLLM 0.19.2")]
)
def test_what_cannot_be_imported_is_named_once_without_a_traceback(venv, file, name):
    venv.files[file] = "raise ImportError('no libcudart')\n"
    venv.question["recipes"] = [RECIPE, RECIPE]
    assert venv.faults() == [f"{name} cannot be imported: no libcudart"]


def test_compiled_parts_that_a_recipe_needs_are_there_and_can_be_loaded(venv):
    venv.write_config("Writes", experts=8)
    part = "_moe_C_stable_libtorch"
    for name in ("_C", "vllm_flash_attn/_vllm_fa2_C"):
        del venv.files[f"vllm/{name}.abi3.so"]
    venv.files[f"vllm/{part}/__init__.py"] = "raise ImportError('no symbol: aoti\\nmore')"
    fault = "recipe mistral: vLLM 0.19.2, {}: {}".format
    lacks = "it has no compiled part {}".format
    assert sorted(venv.faults()) == [
        fault("attention FLASH_ATTN", lacks("vllm_flash_attn/_vllm_fa?_C")),
        fault("experts triton", f"{part} cannot be loaded: ImportError: no symbol: aoti"),
        fault("normalisation", lacks("_C or _C_stable_libtorch")),
    ]


def test_what_only_the_driver_could_answer_is_said_and_no_fault(venv):
    missing = "libcuda.so.1: cannot open shared object file"
    venv.files["vllm/_C/__init__.py"] = f"raise ImportError({missing!r})"
    code, record, output = venv.ask()
    assert (code, output) == (0, "")
    assert record["unasked"][0] == f"_C cannot be loaded: ImportError: {missing}"
    assert f"engine check: not asked: {record['unasked'][1]}\n" in venv.output


def test_flashinfer_is_demanded_where_vllm_would_import_it(venv):
    """A real environment passed the check and died at its start (0.26.0, 2026-11-22)."""
    demand = "flashinfer-python==0.6.4"
    venv.demands["vllm"] = f"Requires-Dist: {demand}\n"
    for name in [name for name in venv.versions if name.startswith("flash")]:
        del venv.versions[name]
    envs = venv.files["vllm/envs.py"]
    known_variable = '"VLLM_USE_FLASHINFER_SAMPLER": lambda: None,\n    "VLLM_PORT"'
    venv.files["vllm/envs.py"] = envs.replace('"VLLM_PORT"', known_variable, 1)
    off = {**RECIPE, "name": "off", "environment": {"VLLM_USE_FLASHINFER_SAMPLER": "0"}}
    venv.question["recipes"] = [RECIPE, off]
    [fault] = venv.faults()
    assert fault.startswith(f"recipe mistral: vLLM 0.19.2 wants {demand}, which is not installed")


@pytest.mark.parametrize("is_waived", [False, True])
def test_kernels_run_where_a_gpu_is_seen(venv, is_waived):
    """The stand-in for PyTorch can do nothing, so each of them fails."""
    venv.question["waive_kernels"] = is_waived
    venv.files["torch/cuda.py"] = "def is_available():\n    return True\n"
    code, record, _ = venv.ask()
    parts = ("matrix product", "normalisation", "sampler", "attention FLASH_ATTN")
    reason = "AttributeError: module 'torch' has no attribute 'inference_mode'"
    wrong = [f"recipe mistral: vLLM 0.19.2, {part}: {reason}" for part in parts]
    expected_faults, waived_faults = ([], wrong) if is_waived else (wrong, [])
    assert (code, record["faults"]) == (len(expected_faults[:1]), expected_faults)
    assert (record["waived"], record["unasked"]) == (waived_faults, [])


def test_no_kernel_runs_where_it_could_end_a_hot_model(monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", torch)
    memory = unified_memory.Memory(119.6, 5.9, 5.9)
    monkeypatch.setattr(unified_memory, "memory", lambda: memory)
    assert kernel_obstacle() == "5.9 GiB of memory are available, not 6"


@pytest.mark.parametrize(
    ("expected_cuda", "built_cuda", "message"),
    [
        # A stand-in host demands a build without CUDA and takes what it gets.
        (None, None, None),
        ("1", "13.0", "torch 2.10 is built for CUDA 13.0, expected 1"),
        (None, "13.0", "torch 2.10 is built for CUDA 13.0, expected a build without CUDA"),
    ],
)
def test_torchs_cuda_is_the_one_that_was_asked_for(expected_cuda, built_cuda, message):
    assert torch_build_fault(expected_cuda, built_cuda, "2.10") == message


def test_flashinfers_three_packages_are_all_there_or_none():
    versions = {"flashinfer-python": "0.6.1", "flashinfer-cubin": None}
    versions["flashinfer-jit-cache"] = "0.6.1+cu130"
    assert "flashinfer-cubin missing" in (flashinfer_versions_fault(versions) or "")
    assert flashinfer_versions_fault(dict.fromkeys(versions)) is None


# checkpoint_classes.py: the classes that load a checkpoint are imported before anything else.

#: What became of the engine's classes and of transformers.
CLASSES = {
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


def test_the_classes_of_a_checkpoint_are_imported(venv, tmp_path):
    venv.files |= CLASSES
    flag = '        serve.add_argument("--config-format")\n'
    venv.files[ENTRY] = VLLM[ENTRY].replace(MODEL_LINE, MODEL_LINE + flag)
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
