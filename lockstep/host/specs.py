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
    locked_wheels,
    mirror_url,
    precompiled_pin,
    transformers_tree,
)
from lockstep.lock.pins import CheckpointPin, Pins, WheelPin
from lockstep.onhost.core import passed_engine_checks
from lockstep.onhost.environment import engine_check
from lockstep.recipes.command import environment
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read
from lockstep.system.tools import same_version
from lockstep.units.served_weights import snapshot

UV = "/usr/local/bin/uv"
#: Distributions that are built from a source tree.
TREES = ("vllm", "transformers")


def engine_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Return the venv engine of one host, as `engine_build` reads it there.

    `packages` is the whole environment but for the source trees, `built_with` the packages that
    build these: one wheel each, with the stage that installs it. `precompiled` is the wheel with
    the fork's compiled parts, which is not installed, or None. `expected` is what must be installed
    afterwards (distribution → version).
    """
    settings = plan.settings
    sources = settings.sources
    packages = locked_wheels(settings, pins, ENGINE)
    name = engine_id(settings, pins)
    return {
        "id": name,
        "home": f"{settings.paths.engines}/{name}",
        "current": f"{settings.paths.engines}/current",
        "python": settings.python,
        "uv": UV,
        # The wheels are fetched by the pip of the tools.
        "tools": f"{TOOLS_VENV}/bin/python",
        "index": sources.python_index,
        "torch_index": sources.torch_index,
        "flashinfer_index": sources.flashinfer_index,
        "packages": [_wheel(wheel) for wheel in packages],
        "built_with": [_wheel(wheel) for wheel in locked_wheels(settings, pins, BUILD)],
        "precompiled": _precompiled_build(plan, pins),
        "vllm": _vllm(plan, pins),
        "transformers": _transformers(plan),
        "expected": {wheel.name: wheel.version for wheel in packages},
        "proxy": settings.proxy.environment(),
        "engine_cuda": settings.expected.engine_cuda,
        "waive_kernels": "engine-kernel" in settings.waive,
        "recipes": _recipes(plan, pins),
    }


def engine_content(plan: HostPlan, pins: Pins) -> dict[str, list[str]]:
    """Return stage → hashes of its wheels and commits of its source trees, without empty stages."""
    spec = engine_spec(plan, pins)
    content: dict[str, list[str]] = {}
    for wheel in spec["packages"]:
        content.setdefault(wheel["stage"], []).append(wheel["sha256"])
    trees = [spec[name]["commit"] for name in TREES if spec[name]]
    if trees:
        build_hashes = [spec["precompiled"]["sha256"]] if spec["precompiled"] else []
        built_with = [wheel["sha256"] for wheel in spec["built_with"]]
        content.setdefault("vllm", []).extend([*built_with, *build_hashes, *trees])
    return content


# Packages of other stages; all others come with the stage of vLLM.
_STAGES = {"torch": "pytorch", "torchvision": "pytorch"} | dict.fromkeys(FLASHINFER, "flashinfer")


def _wheel(wheel: WheelPin) -> dict[str, Any]:
    return {**asdict(wheel), "stage": _STAGES.get(wheel.name, "vllm")}


def _transformers(plan: HostPlan) -> dict[str, str | None] | None:
    tree = transformers_tree(plan.settings)
    if tree is None:
        return None
    url = mirror_url(tree.url, plan.settings.sources)
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
        "git": mirror_url(engine.git, plan.settings.sources),
        "branch": engine.branch,
        "commit": engine.commit or pins.git[engine.git].commit,
        "environment": {**build, **engine.build_environment},
    }


def _precompiled_build(plan: HostPlan, pins: Pins) -> dict[str, Any] | None:
    pin = precompiled_pin(plan.settings, pins)
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
    """Return command lines, environments and checkpoints that the venv's engine must accept."""

    return [
        {
            "name": recipe.name,
            "argv": list(model.command(recipe)),
            "environment": environment(recipe, overrides=model.overrides(recipe)),
            "read": options_read(recipe, model.command(recipe)),
            "checkpoint": _checkpoint(plan, recipe, pins),
        }
        for model in plan.models
        for recipe in model.recipes
        if not recipe.in_container
    ]


def _checkpoint(plan: HostPlan, recipe: Recipe, pins: Pins) -> list[dict[str, Any]]:
    """Return folders on the host and the files that an engine finds there; a later folder's win.

    A folder of the owner's has no list: it stays as it is.
    """
    if recipe.model.startswith("/"):
        return [{"folder": recipe.model, "files": []}]
    parts = [(recipe.repository, [file.path for file in pins.checkpoints[recipe.repository].files])]
    parts += [(borrow.model, list(borrow.files)) for borrow in recipe.lockstep.borrow]
    return [
        {
            "folder": snapshot(plan.settings, checkpoint, pins.checkpoints[checkpoint].commit),
            "files": files,
        }
        for checkpoint, files in parts
    ]


def weights_spec(plan: HostPlan, pins: Pins) -> dict[str, Any]:
    """Return every checkpoint, draft and borrowed file of one host, as `fetch_weights` reads it."""
    repositories: dict[str, dict[str, Any]] = {}

    def add(checkpoint: str) -> dict[str, Any]:
        return repositories.setdefault(checkpoint, _repository(checkpoint, pins))

    for recipe in (recipe for model in plan.models for recipe in model.recipes):
        draft = draft_of(recipe)
        # A full path is on the host already.
        if not recipe.model.startswith("/"):
            borrowed_checkpoints = add(recipe.repository).setdefault("borrow", [])
            for borrow in recipe.lockstep.borrow:
                pin = pins.checkpoints[borrow.model]
                files = _files_of_pin(pin, borrow.files)
                entry = {"model": borrow.model, "revision": pin.commit, "files": files}
                borrowed_checkpoints += [entry] if entry not in borrowed_checkpoints else []
        if draft and not draft.model.startswith("/"):
            add(draft.model)
    return {
        "cache_dir": f"{plan.settings.paths.hub_cache}/hub",
        "endpoint": plan.settings.sources.hub,
        "repositories": list(repositories.values()),
    }


def _repository(checkpoint: str, pins: Pins) -> dict[str, Any]:
    pin = pins.checkpoints[checkpoint]
    # Engines look up some parts of a draft by branch name, even when they were given a revision.
    refs = [pin.asked] if pin.asked != pin.commit else []
    return {"model": checkpoint, "revision": pin.commit, "files": _files_of_pin(pin), "refs": refs}


def _files_of_pin(pin: CheckpointPin, only: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    return [
        {"path": file.path, "size": file.size, "sha256": file.sha256}
        | ({"blob": file.blob} if file.blob else {})
        for file in pin.files
        if only is None or file.path in only
    ]


def engine_check_hash(spec: Mapping[str, Any]) -> str:
    """Return a hash of the question to `engine_check`; its record counts only for the same one."""
    return passed_engine_checks.question_hash(
        json.dumps({key: spec[key] for key in engine_check.ASKED})
    )


def missing_engine_parts(
    spec: Mapping[str, Any], environments: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return what a host's engine environment lacks, by stage; {} when it is as it should be.

    `environments` is the answer of the reader of that name.
    """
    environment = environments["environment"]
    missing: dict[str, list[str]] = {}
    if not environment["python"]:
        missing["pytorch"] = ["the venv"]
    elif environments["unfinished"]:
        missing["pytorch"] = ["the venv, whose last installation was cut off"]
    elif environment["python"] != spec["python"]:
        missing["pytorch"] = [f"Python {spec['python']} (it has {environment['python']})"]
    distributions = environment["distributions"]
    for name, version in spec["expected"].items():
        if not same_version(distributions.get(name), version):
            missing.setdefault(_STAGES.get(name, "vllm"), []).append(f"{name} {version}")
    for name in sorted(set(distributions) - set(spec["expected"]) - set(TREES)):
        missing.setdefault("vllm", []).append(f"no {name}")
    for name in TREES:
        source = spec[name]
        if not source:
            continue
        is_installed = (environment["origins"].get(name) or {}).get(
            "url"
        ) == f"file://{spec['home']}/{name}"
        if environments["commits"][name] != source["commit"] or not is_installed:
            missing.setdefault("vllm", []).append(f"{name} at {source['commit'][:12]}")
    return missing
