"""What the programs on a host are told to bring about: engine environment, weights."""

from __future__ import annotations

from typing import Any

from lockstep.command import environment, serve_command
from lockstep.engine_id import engine_id
from lockstep.inventory import HostPlan
from lockstep.pins import ModelPin, Pins
from lockstep.wanted import FLASHINFER, mirrored

UV = "/usr/local/bin/uv"


def engine_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """The venv engine of one host: read by `engine_build.py` on the host.

    Every requirement is exact; `steps` are requirement lists in the order of the tasks.
    """
    settings, engine = plan.settings, plan.settings.engine
    sources = settings.sources
    home = f"{settings.paths.engines}/{engine_id(settings, pins)}"
    torch = [pins.python[name] for name in (engine.torch, engine.torchvision) if name]
    after = []
    if engine.transformers_git:
        commit = engine.transformers_commit or pins.git[engine.transformers_git].commit
        url = mirrored(engine.transformers_git, sources)
        after.append(f"transformers @ git+{url}@{commit}")
    if engine.mistral_common:
        after.append(pins.python[engine.mistral_common])
    triple: list[str] = []
    if engine.flashinfer:
        triple = pins.python[FLASHINFER + engine.flashinfer_version].split()
    return {
        "id": engine_id(settings, pins),
        "home": home,
        "current": f"{settings.paths.engines}/current",
        "python": settings.python,
        "uv": UV,
        "index": sources.python_index,
        "torch_index": sources.torch_index,
        "flashinfer_index": sources.flashinfer_index,
        "torch": torch,
        "vllm": _vllm(plan, pins),
        "after": after,
        "flashinfer": triple,
        "proxy": settings.proxy.environment(),
        "engine_cuda": settings.expected.engine_cuda,
        "recipes": _recipes(plan),
    }


def _vllm(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    engine = plan.settings.engine
    if engine.git is None:
        return {"requirement": pins.python[engine.release]}
    build = {"VLLM_USE_PRECOMPILED": "1"} if engine.precompiled else {}
    return {
        "git": mirrored(engine.git, plan.settings.sources),
        "branch": engine.branch,
        "commit": engine.commit or pins.git[engine.git].commit,
        "environment": {**build, **engine.build_environment},
    }


def _recipes(plan: HostPlan) -> list[dict[str, Any]]:
    """Command lines and environments that this venv's engine must accept."""
    return [
        {
            "name": recipe.name,
            "argv": list(serve_command(recipe, overrides=target.overrides())),
            "environment": environment(recipe),
        }
        for target in plan.targets
        for recipe in target.recipes
        if target.image is None
    ]


def weights_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Every model, draft and borrowed file of one host: read by `fetch_weights.py` on the host."""
    repositories: dict[str, dict[str, Any]] = {}
    for target in plan.targets:
        for recipe in target.recipes:
            block = recipe.lockstep
            repositories[recipe.model] = _repository(recipe.model, pins.models[recipe.model]) | {
                "borrow": [
                    {
                        "model": borrow.model,
                        "revision": pins.models[borrow.model].commit,
                        "files": _files(pins.models[borrow.model], borrow.files),
                    }
                    for borrow in block.borrow
                ]
            }
            if block.draft:
                draft = block.draft.model
                repositories[draft] = _repository(draft, pins.models[draft])
    return {
        "cache_dir": f"{plan.settings.paths.hub_cache}/hub",
        "endpoint": plan.settings.sources.hub,
        "repositories": list(repositories.values()),
    }


def _repository(model: str, pin: ModelPin) -> dict[str, Any]:
    return {"model": model, "revision": pin.commit, "files": _files(pin), "borrow": []}


def _files(pin: ModelPin, only: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    return [
        {"path": file.path, "size": file.size, "sha256": file.sha256}
        for file in pin.files
        if only is None or file.path in only
    ]
