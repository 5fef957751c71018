"""Specifications for the programs on a host: engine environment, weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from packaging.utils import parse_wheel_filename

from lockstep.files.managed_file import TOOLS_VENV
from lockstep.inventory.host import HostPlan
from lockstep.lock.engine_id import engine_id
from lockstep.lock.packages import (
    BUILD,
    ENGINE,
    FLASHINFER,
    fork_version,
    locked,
    mirrored,
    precompiled,
    transformers_tree,
)
from lockstep.lock.pins import ModelPin, Pins, WheelPin
from lockstep.onhost.core import taken
from lockstep.onhost.environment import engine_check
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read
from lockstep.system.tools import same_version
from lockstep.units.served_weights import snapshot

UV = "/usr/local/bin/uv"
#: Distributions that are built from a source tree.
TREES = ("vllm", "transformers")


def engine_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """The venv engine of one host: read by `engine_build` on the host.

    `packages` is the whole environment but for the source trees, `built_with` what these are built
    with: one wheel each, with the stage that installs it. `precompiled` is the wheel with the
    fork's compiled parts, which is not installed, or None. `expected` is what must be installed
    afterwards (distribution → version).
    """
    settings = plan.settings
    sources = settings.sources
    packages = locked(settings, pins, ENGINE)
    name = engine_id(settings, pins)
    return {
        "id": name,
        "home": f"{settings.paths.engines}/{name}",
        "current": f"{settings.paths.engines}/current",
        "python": settings.python,
        "uv": UV,
        # Its pip fetches the wheels.
        "tools": f"{TOOLS_VENV}/bin/python",
        "index": sources.python_index,
        "torch_index": sources.torch_index,
        "flashinfer_index": sources.flashinfer_index,
        "packages": [_wheel(wheel) for wheel in packages],
        "built_with": [_wheel(wheel) for wheel in locked(settings, pins, BUILD)],
        "precompiled": _precompiled(plan, pins),
        "vllm": _vllm(plan, pins),
        "transformers": _transformers(plan),
        "expected": {wheel.name: wheel.version for wheel in packages},
        "proxy": settings.proxy.environment(),
        "engine_cuda": settings.expected.engine_cuda,
        "waive_kernels": "engine-kernel" in settings.waive,
        "recipes": _recipes(plan, pins),
    }


def engine_content(plan: HostPlan, pins: Pins) -> dict[str, list[str]]:
    """Stage → hashes of its wheels and commits of its source trees; stages without any left out."""
    spec = engine_spec(plan, pins)
    found: dict[str, list[str]] = {}
    for wheel in spec["packages"]:
        found.setdefault(wheel["stage"], []).append(wheel["sha256"])
    trees = [spec[name]["commit"] for name in TREES if spec[name]]
    if trees:
        compiled = [spec["precompiled"]["sha256"]] if spec["precompiled"] else []
        built_with = [wheel["sha256"] for wheel in spec["built_with"]]
        found.setdefault("vllm", []).extend([*built_with, *compiled, *trees])
    return found


# What each stage installs; the rest comes with vLLM.
_STAGES = {"torch": "pytorch", "torchvision": "pytorch"} | dict.fromkeys(FLASHINFER, "flashinfer")


def _wheel(wheel: WheelPin) -> dict[str, Any]:
    return {**asdict(wheel), "stage": _STAGES.get(wheel.name, "vllm")}


def _transformers(plan: HostPlan) -> dict[str, str | None] | None:
    tree = transformers_tree(plan.settings)
    if tree is None:
        return None
    url = mirrored(tree.url, plan.settings.sources)
    return {"git": url, "branch": tree.branch, "commit": tree.commit}


def _vllm(plan: HostPlan, pins: Pins) -> dict[str, Any] | None:
    engine = plan.settings.engine
    if engine.git is None:
        return None
    build = {"VLLM_USE_PRECOMPILED": "1"} if engine.precompiled else {}
    version = fork_version(plan.settings, pins)
    if version:
        build["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
    return {
        "git": mirrored(engine.git, plan.settings.sources),
        "branch": engine.branch,
        "commit": engine.commit or pins.git[engine.git].commit,
        "environment": {**build, **engine.build_environment},
    }


def _precompiled(plan: HostPlan, pins: Pins) -> dict[str, Any] | None:
    pin = precompiled(plan.settings, pins)
    if pin is None:
        return None
    name, version, *_ = parse_wheel_filename(pin.file)
    return {
        "name": name,
        "version": str(version),
        "file": pin.file,
        "sha256": pin.sha256,
        "size": pin.size,
        "url": plan.settings.sources.vllm_wheel(pin.path),
    }


def _recipes(plan: HostPlan, pins: Pins) -> list[dict[str, Any]]:
    """Command lines, environments and checkpoints that this venv's engine must accept."""

    return [
        {
            "name": recipe.name,
            "argv": list(argv := serve_command(recipe, overrides=target.overrides(recipe))),
            "environment": environment(recipe, overrides=target.overrides(recipe)),
            "read": options_read(recipe, argv),
            "checkpoint": _checkpoint(plan, recipe, pins),
        }
        for target in plan.targets
        for recipe in target.recipes
        if not recipe.in_container
    ]


def _checkpoint(plan: HostPlan, recipe: Recipe, pins: Pins) -> list[dict[str, Any]]:
    """Folders on the host and the files that an engine finds there; a later one's win.

    A folder of the owner's has no list: it is as it is.
    """
    if recipe.model.startswith("/"):
        return [{"folder": recipe.model, "files": []}]
    parts = [(recipe.repository, [file.path for file in pins.models[recipe.repository].files])]
    parts += [(borrow.model, list(borrow.files)) for borrow in recipe.lockstep.borrow]
    return [
        {"folder": snapshot(plan.settings, model, pins.models[model].commit), "files": files}
        for model, files in parts
    ]


def weights_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Every model, draft and borrowed file of one host: read by `fetch_weights` on the host."""
    repositories: dict[str, dict[str, Any]] = {}

    def add(model: str) -> dict[str, Any]:
        return repositories.setdefault(model, _repository(model, pins))

    for recipe in (recipe for target in plan.targets for recipe in target.recipes):
        draft = recipe.lockstep.draft
        # A full path is on the host already.
        if not recipe.model.startswith("/"):
            borrowed = add(recipe.repository).setdefault("borrow", [])
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
        | ({"blob": file.blob} if file.blob else {})
        for file in pin.files
        if only is None or file.path in only
    ]


def check_wanted(spec: Mapping[str, Any]) -> str:
    """Hash of what `engine_check` is asked: its record counts only for the same question."""
    return taken.digest(json.dumps({key: spec[key] for key in engine_check.ASKED}))


def engine_missing(spec: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a host's engine environment still lacks, by stage; {} when it is as it should be.

    `found` is what the reader `environments` answered.
    """
    here = found["environment"]
    missing: dict[str, list[str]] = {}
    if not here["python"]:
        missing["pytorch"] = ["the venv"]
    elif found["unfinished"]:
        missing["pytorch"] = ["the venv, whose last installation was cut off"]
    elif here["python"] != spec["python"]:
        missing["pytorch"] = [f"Python {spec['python']} (it has {here['python']})"]
    distributions = here["distributions"]
    for name, version in spec["expected"].items():
        if not same_version(distributions.get(name), version):
            missing.setdefault(_STAGES.get(name, "vllm"), []).append(f"{name} {version}")
    for name in sorted(set(distributions) - set(spec["expected"]) - set(TREES)):
        missing.setdefault("vllm", []).append(f"no {name}")
    for name in TREES:
        source = spec[name]
        if not source:
            continue
        installed = (here["origins"].get(name) or {}).get("url") == f"file://{spec['home']}/{name}"
        if found["commits"][name] != source["commit"] or not installed:
            missing.setdefault("vllm", []).append(f"{name} at {source['commit'][:12]}")
    return missing
