"""Ask an installed vLLM, without a GPU, whether it is what was wanted and can run every recipe.

usage: PYTHON-OF-THE-VENV engine-check RECORD.json

The question stands in LOCKSTEP_ENGINE: {"id", "engine_cuda", "recipes": [{"name", "argv",
"environment", "checkpoint"}]}. RECORD.json gets {"asked", "version", "moe_flag", "torch", "cuda",
"flashinfer", "faults"}.

exit codes: 0 no fault, 1 faults, one line each
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import atomic
from lockstep.onhost.environment import engine_classes

VLLM = engines.ENGINES["vllm"]
TRIPLE = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def version(name: str) -> str | None:
    """Installed version of a distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def cuda_fault(expected: str | None, found: str | None, torch: str) -> str | None:
    """What is wrong with PyTorch's build, or None."""
    if expected is None:
        if found is None:
            return None
        return f"torch {torch} is built for CUDA {found}, expected a build without CUDA"
    if found is None:
        return (
            f"torch {torch} is a CPU build, expected CUDA {expected}: it came from the wrong index "
            "(PyPI's torch 2.10 for aarch64 has no CUDA); set sources.torch_index"
        )
    if not f"{found}.".startswith(f"{expected}."):
        return f"torch {torch} is built for CUDA {found}, expected {expected}"
    return None


def triple_fault(found: dict[str, str | None]) -> str | None:
    """What is wrong with the FlashInfer packages, or None."""
    present = {name: text.split("+")[0] for name, text in found.items() if text}
    if not present:
        return None
    if len(present) < len(TRIPLE) or len(set(present.values())) > 1:
        shown = ", ".join(f"{name} {found[name] or 'missing'}" for name in TRIPLE)
        return f"the FlashInfer packages do not agree: {shown}"
    return None


def recipe_fault(recipe: dict[str, Any], engine: str, moe_flag: bool | None) -> str | None:
    """Why the engine refuses a recipe's flags or variables, or cannot load its model, or None."""
    try:
        said = VLLM.fault(engine, recipe, moe_flag)
    except engines.Unanswered as reason:
        return str(reason)
    return said or engine_classes.fault(engine, recipe)


def examine(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything the record holds."""
    engine = version("vllm")
    triple = {name: version(name) for name in TRIPLE}
    faults = [triple_fault(triple)]
    try:
        import torch

        cuda = torch.version.cuda
        faults.append(cuda_fault(asked["engine_cuda"], cuda, torch.__version__))
    except Exception as error:
        cuda = None
        faults.append(f"torch {version('torch')} cannot be imported: {error}")
    moe_flag = None
    if engine is None:
        faults.append("vllm is not installed")
    else:
        moe_flag = VLLM.takes_guard()
        faults += [recipe_fault(recipe, engine, moe_flag) for recipe in asked["recipes"]]
    return {
        "version": engine,
        "moe_flag": moe_flag,
        "torch": version("torch"),
        "cuda": cuda,
        "flashinfer": triple,
        # An engine that cannot be imported says so once, not once per recipe.
        "faults": list(dict.fromkeys(fault for fault in faults if fault)),
    }


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    text = os.environ["LOCKSTEP_ENGINE"]
    record = examine(json.loads(text))
    record["asked"] = hashlib.sha256(text.encode()).hexdigest()
    atomic.write_json(Path(argv[0]), record)
    print(f"engine check: vllm {record['version']}, torch {record['torch']}", flush=True)
    # Last, because the end of a failed job is what the deploy repeats at its own end.
    for fault in record["faults"]:
        print(f"engine check: {fault}", file=sys.stderr)
    return 1 if record["faults"] else 0


if __name__ == "__main__":
    # Nothing that an engine imports is garbage; looking for some costs a sixth of the processor
    # time (6.4 instead of 7.8 s: vLLM's CPU build, two cores, 2026-11-21).
    gc.disable()
    sys.exit(main(sys.argv[1:]))
