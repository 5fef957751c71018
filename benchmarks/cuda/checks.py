"""Engine check: its findings on this environment, and with a compiled part taken out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.cuda import REPOSITORY, page
from benchmarks.cuda.cases import CASES, command
from benchmarks.cuda.server import Environment
from lockstep.inventory.settings import ExpectedMachine
from lockstep.onhost.environment import compiled_parts

_WHERE = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Check the whole environment as a deploy does, then without one compiled part after another.

    The environment is not changed: a part is taken out of a folder of links.
    """
    check_variables: dict[str, dict[str, str]] = {
        "whole": {},
        "as the recipes say": {},
        "without a GPU": {"CUDA_VISIBLE_DEVICES": ""},
    }
    package = _package(environment)
    names = [name for _, names in compiled_parts.EXTENSIONS for name in names]
    for part in sorted(file for name in names for file in package.glob(f"{name}.*so")):
        name = str(part.relative_to(package))
        links = _links(package, environment.folder / "links" / part.stem, part)
        path = f"{links}:{environment.environ().get('PYTHONPATH', '')}"
        check_variables[f"without {name}"] = {"PYTHONPATH": path}

    def check(name: str) -> dict[str, Any]:
        file = name.replace("/", "_").replace(" ", "-")
        return _check(environment, folders, file, check_variables[name])

    with ThreadPoolExecutor(4) as pool:
        yield from zip(check_variables, pool.map(check, check_variables), strict=True)


def _check(
    environment: Environment, folders: Path, name: str, variables: Mapping[str, str]
) -> dict[str, Any]:
    recipes = []
    for case in CASES.values():
        words, own = command(case, folders)
        where = {"folder": str(folders / case.checkpoint), "files": []}
        all_of_it = {**own, **environment.variables}
        recipes.append(
            {
                "name": case.name,
                "argv": list(words),
                "environment": own if name == "as-the-recipes-say" else all_of_it,
                "checkpoint": [where],
            }
        )
    settings = {
        "id": "cuda",
        "engine_cuda": ExpectedMachine().engine_cuda,
        "waive_kernels": False,
        "recipes": recipes,
    }
    record = environment.folder / f"check-{name}.json"
    environ = environment.environ({"LOCKSTEP_ENGINE": json.dumps(settings), **variables})
    environ["PYTHONPATH"] = f"{environ.get('PYTHONPATH', '')}:{REPOSITORY}"
    result = subprocess.run(
        [environment.python, "-m", "lockstep.onhost", "engine-check", str(record)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    if not record.exists():
        return {"exit": result.returncode, "faults": result.stderr.splitlines()[-3:]}
    report: dict[str, Any] = {"exit": result.returncode, **json.loads(record.read_text())}
    return report


def _package(environment: Environment) -> Path:
    return Path(environment.program_output(_WHERE).splitlines()[-1])


def _links(package: Path, into: Path, without: Path) -> Path:
    """A folder with vLLM's package as links, less one file."""
    for folder, _, names in os.walk(package):
        target_path = Path(folder)
        link_folder = into / package.name / target_path.relative_to(package)
        link_folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if target_path / name != without and not (link_folder / name).is_symlink():
                (link_folder / name).symlink_to(target_path / name)
    return into


def text(results: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    rows = [
        [
            name,
            *page.row(figures, ("exit",)),
            _agreement(figures),
            "; ".join(figures["faults"])[:400] or "none",
        ]
        for name, figures in results.items()
    ]
    heads = ("environment", "exit", "kernels, difference from PyTorch", "faults")
    return "\n\n".join(["## Engine check", page.table(heads, rows)])


def _agreement(figures: Mapping[str, Any]) -> str:
    shares = [f"{part} {share:.1%}" for part, share in figures.get("agreed", {}).items()]
    return ", ".join([*shares, *figures.get("unasked", [])]) or "none"
