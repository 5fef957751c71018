"""Check that an installed vLLM is the wanted one and can run every recipe.

If there is a GPU, one small kernel of each part that the recipes use runs on it.

usage: PYTHON-OF-THE-VENV engine-check RECORD.json

The question stands in LOCKSTEP_ENGINE: {"id", "engine_cuda", "waive_kernels", "recipes": [{"name",
"argv", "environment", "checkpoint"}]}. RECORD.json gets {"asked", "version", "torch", "cuda",
"flashinfer", "agreed", "unasked", "waived", "faults"}.

exit codes: 0 no fault, 1 faults, one line each
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import passed_engine_checks, unified_memory
from lockstep.onhost.environment import checkpoint_classes, compiled_parts_check

VLLM = engines.ENGINES["vllm"]
#: Keys of the engine's specification that are part of the question.
ASKED = ("id", "engine_cuda", "waive_kernels", "recipes")
TRIPLE = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def torch_build_fault(
    expected_version: str | None, found_version: str | None, torch: str
) -> str | None:
    """Return the fault of PyTorch's build, or None."""
    if expected_version is None:
        if found_version is None:
            return None
        return f"torch {torch} is built for CUDA {found_version}, expected a build without CUDA"
    if found_version is None:
        return (
            f"torch {torch} is a CPU build, expected CUDA {expected_version}: it came from the "
            "wrong index "
            "(PyPI's torch 2.10 for aarch64 has no CUDA); set sources.torch_index"
        )
    if not f"{found_version}.".startswith(f"{expected_version}."):
        return f"torch {torch} is built for CUDA {found_version}, expected {expected_version}"
    return None


def flashinfer_versions_fault(versions: dict[str, str | None]) -> str | None:
    """Return the fault of the FlashInfer packages, or None."""
    present = {name: text.split("+")[0] for name, text in versions.items() if text}
    if not present:
        return None
    if len(present) < len(TRIPLE) or len(set(present.values())) > 1:
        versions_text = ", ".join(f"{name} {versions[name] or 'missing'}" for name in TRIPLE)
        return f"the FlashInfer packages do not agree: {versions_text}"
    return None


def missing_flashinfer_fault(engine: str, recipes: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the recipes that end without FlashInfer, if vLLM demands it and it is absent, or None.

    vLLM's sampler imports it without a check (`topk_topp_sampler.py` of 0.20 to 0.32).
    """
    demands = importlib.metadata.requires("vllm") or ()
    required_lines = [line for line in demands if line.startswith(TRIPLE[0]) and ";" not in line]
    off = ("VLLM_USE_FLASHINFER_SAMPLER", "0")
    users = [recipe["name"] for recipe in recipes if off not in recipe["environment"].items()]
    if not required_lines or not users or checkpoint_classes.installed_version(TRIPLE[0]):
        return None
    return (
        f"recipe {', '.join(users)}: vLLM {engine} wants {required_lines[0]}, which is not "
        "installed: it "
        "would end as it starts"
    )


def recipe_fault(
    recipe: dict[str, Any], engine: str, parts: compiled_parts_check.Parts
) -> str | None:
    """Return why the engine refuses a recipe or cannot load its model, or None.

    It may refuse flags or variables. The parts of the engine that the recipe will run are added to
    `parts`.
    """
    try:
        fault = VLLM.recipe_refusal(engine, recipe)
        if fault:
            return fault
        config = checkpoint_classes.checkpoint_config(engine, recipe)
    except (engines.EngineUnavailable, checkpoint_classes.ClassesUnreadable) as reason:
        return str(reason)
    parts.add_recipe(recipe["name"], recipe, config)
    return checkpoint_classes.class_import_fault(engine, recipe["name"], config)


def kernel_obstacle() -> str | None:
    """Return why no kernel can run here, or None."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU is seen"
    # A model may be hot, and a kernel's process on a full machine could end it.
    available = unified_memory.memory().available
    if available < compiled_parts_check.ROOM_GIB:
        return f"{available:.1f} GiB of memory are available, not {compiled_parts_check.ROOM_GIB:g}"
    return None


def examine_environment(question: dict[str, Any]) -> dict[str, Any]:
    """Return everything that the record holds."""
    engine = checkpoint_classes.installed_version("vllm")
    parts = compiled_parts_check.Parts(engine or "")
    triple = {name: checkpoint_classes.installed_version(name) for name in TRIPLE}
    faults = [flashinfer_versions_fault(triple)]
    try:
        import torch

        cuda = torch.version.cuda
        faults.append(torch_build_fault(question["engine_cuda"], cuda, torch.__version__))
    except Exception as error:
        cuda = None
        faults.append(
            f"torch {checkpoint_classes.installed_version('torch')} cannot be imported: {error}"
        )
    if engine is None:
        faults.append("vllm is not installed")
    else:
        recipes = question["recipes"]
        faults += [recipe_fault(recipe, engine, parts) for recipe in recipes]
        if cuda:
            faults.append(missing_flashinfer_fault(engine, recipes))
            parts.load(Path(importlib.import_module("vllm").__file__ or "").parent)
            parts.run_kernels(kernel_obstacle())
    waived_kernels = question["waive_kernels"]
    faults += [*parts.faults, *(() if waived_kernels else parts.wrong)]
    return {
        "version": engine,
        "torch": checkpoint_classes.installed_version("torch"),
        "cuda": cuda,
        "flashinfer": triple,
        "agreed": parts.differences,
        "unasked": parts.silent_parts,
        "waived": parts.wrong if waived_kernels else [],
        # An engine that cannot be imported says so once, not once per recipe.
        "faults": list(dict.fromkeys(fault for fault in faults if fault)),
    }


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    text = os.environ["LOCKSTEP_ENGINE"]
    record = examine_environment(json.loads(text))
    record["asked"] = passed_engine_checks.question_hash(text)
    passed_engine_checks.write(Path(argv[0]), record)
    print(f"engine check: vllm {record['version']}, torch {record['torch']}", flush=True)
    for part, differs in record["agreed"].items():
        print(f"engine check: {part} agrees with PyTorch within {differs:.2%}", flush=True)
    for line in record["unasked"]:
        print(f"engine check: not asked: {line}", flush=True)
    for line in record["waived"]:
        print(f"engine check: waived: {line}", flush=True)
    # Last, because the deploy repeats the end of a failed job at its own end.
    for fault in record["faults"]:
        print(f"engine check: {fault}", file=sys.stderr)
    return 1 if record["faults"] else 0
