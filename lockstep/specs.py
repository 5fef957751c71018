"""What the programs on a host are told to bring about: engine environment, weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from lockstep import guards
from lockstep.command import environment, serve_command
from lockstep.engine_id import engine_id
from lockstep.inventory import HostPlan
from lockstep.packages import FLASHINFER, engine_requirements, mirrored
from lockstep.pins import ModelPin, Pins

UV = "/usr/local/bin/uv"


def engine_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """The venv engine of one host: read by `engine_build.py` on the host.

    Every requirement is exact; `torch`, `after` and `flashinfer` are requirement lists of the
    stages, `expected` is what must be installed afterwards (distribution → version).
    """
    settings, engine = plan.settings, plan.settings.engine
    sources = settings.sources
    exact = engine_requirements(settings, pins)
    name = engine_id(settings, pins)
    return {
        "id": name,
        "home": f"{settings.paths.engines}/{name}",
        "current": f"{settings.paths.engines}/current",
        "python": settings.python,
        "uv": UV,
        "index": sources.python_index,
        "torch_index": sources.torch_index,
        "flashinfer_index": sources.flashinfer_index,
        "torch": [exact[item] for item in ("torch", "torchvision") if item in exact],
        "vllm": _vllm(plan, pins, exact),
        "transformers": _transformers(plan, pins),
        "after": [exact[item] for item in ("mistral-common",) if item in exact],
        "flashinfer": [exact[item] for item in FLASHINFER if engine.flashinfer],
        "expected": {item: text.partition("==")[2] for item, text in exact.items()},
        "proxy": settings.proxy.environment(),
        "engine_cuda": settings.expected.engine_cuda,
        "recipes": _recipes(plan),
    }


def _transformers(plan: HostPlan, pins: Pins) -> dict[str, str] | None:
    engine = plan.settings.engine
    if not engine.transformers_git:
        return None
    return {
        "git": mirrored(engine.transformers_git, plan.settings.sources),
        "branch": engine.transformers_branch,
        "commit": engine.transformers_commit or pins.git[engine.transformers_git].commit,
    }


def _vllm(plan: HostPlan, pins: Pins, exact: Mapping[str, str]) -> dict[str, Any]:
    engine = plan.settings.engine
    if engine.git is None:
        return {"requirement": exact["vllm"]}
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
            "argv": list(serve_command(recipe, overrides=target.overrides(recipe))),
            # Which of its two forms the guard takes is decided when the engine's version is known.
            "environment": {
                name: value
                for name, value in environment(recipe).items()
                if name != guards.VARIABLE
            },
        }
        for target in plan.targets
        for recipe in target.recipes
        if not recipe.in_container
    ]


def weights_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Every model, draft and borrowed file of one host: read by `fetch_weights.py` on the host."""
    repositories: dict[str, dict[str, Any]] = {}

    def add(model: str) -> dict[str, Any]:
        return repositories.setdefault(model, _repository(model, pins))

    for recipe in (recipe for target in plan.targets for recipe in target.recipes):
        draft = recipe.lockstep.draft
        # A full path is on the host already.
        if not recipe.model.startswith("/"):
            borrowed = add(recipe.model).setdefault("borrow", [])
            for borrow in recipe.lockstep.borrow:
                pin = pins.models[borrow.model]
                files = _files(pin, borrow.files)
                entry = {"model": borrow.model, "revision": pin.commit, "files": files}
                borrowed += [entry] if entry not in borrowed else []
        if draft and not draft.model.startswith("/"):
            add(draft.model)
    return {
        "cache_dir": f"{plan.settings.paths.hub_cache}/hub",
        "endpoint": plan.settings.sources.hub,
        "repositories": list(repositories.values()),
    }


def _repository(model: str, pins: Pins) -> dict[str, Any]:
    pin = pins.models[model]
    # Engines look some parts of a draft up by branch name, whatever revision they were told.
    refs = [pin.asked] if pin.asked != pin.commit else []
    return {"model": model, "revision": pin.commit, "files": _files(pin), "refs": refs}


def _files(pin: ModelPin, only: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    return [
        {"path": file.path, "size": file.size, "sha256": file.sha256}
        for file in pin.files
        if only is None or file.path in only
    ]


def check_wanted(spec: Mapping[str, Any]) -> str:
    """Hash of what `engine_check.py` is asked: its record counts only for the same question."""
    asked = json.dumps({key: spec[key] for key in ("id", "engine_cuda", "recipes")})
    return hashlib.sha256(asked.encode()).hexdigest()


def engine_missing(spec: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a host's engine environment still lacks, by stage; {} when it is as it should be.

    Args:
        spec: As `engine_spec` gives it.
        found: What the probe `engines` answered.
    """
    here = found["environment"]
    missing: dict[str, list[str]] = {}
    if not here["python"]:
        missing["pytorch"] = ["the venv"]
    elif found["unfinished"]:
        missing["pytorch"] = ["the venv, whose last installation was cut off"]
    elif here["python"] != spec["python"]:
        missing["pytorch"] = [f"Python {spec['python']} (it has {here['python']})"]
    stages = {"torch": "pytorch", "torchvision": "pytorch"} | dict.fromkeys(
        FLASHINFER, "flashinfer"
    )
    for name, version in spec["expected"].items():
        have = here["distributions"].get(name)
        # An index of one's own may serve torch 2.13.0 as 2.13.0+cpu: the same public version.
        if have != version and (have is None or have.split("+")[0] != version):
            missing.setdefault(stages.get(name, "vllm"), []).append(f"{name} {version}")
    for name, source in (("vllm", spec["vllm"]), ("transformers", spec["transformers"])):
        if not source or "git" not in source:
            continue
        installed = (here["origins"].get(name) or {}).get("url") == f"file://{spec['home']}/{name}"
        if found["commits"][name] != source["commit"] or not installed:
            missing.setdefault("vllm", []).append(f"{name} at {source['commit'][:12]}")
    return missing
