"""Engine check: what it says of this environment, and of it with a compiled part taken out."""

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
from lockstep.inventory.settings import Expected
from lockstep.onhost.environment import engine_parts

_WHERE = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Ask as a deploy asks: of the whole environment, then without one compiled part after another.

    Nothing of the environment is touched: what is taken out is missing from a folder of links.
    """
    asked: dict[str, dict[str, str]] = {
        "whole": {},
        "as the recipes say": {},
        "without a GPU": {"CUDA_VISIBLE_DEVICES": ""},
    }
    package = _package(environment)
    names = [name for _, names in engine_parts.EXTENSIONS for name in names]
    for part in sorted(file for name in names for file in package.glob(f"{name}.*so")):
        name = str(part.relative_to(package))
        links = _links(package, environment.folder / "links" / part.stem, part)
        path = f"{links}:{environment.environ().get('PYTHONPATH', '')}"
        asked[f"without {name}"] = {"PYTHONPATH": path}

    def check(name: str) -> dict[str, Any]:
        file = name.replace("/", "_").replace(" ", "-")
        return _check(environment, folders, file, asked[name])

    with ThreadPoolExecutor(4) as pool:
        yield from zip(asked, pool.map(check, asked), strict=True)


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
    asked = {
        "id": "cuda",
        "engine_cuda": Expected().engine_cuda,
        "waive_kernels": False,
        "recipes": recipes,
    }
    record = environment.folder / f"check-{name}.json"
    environ = environment.environ({"LOCKSTEP_ENGINE": json.dumps(asked), **variables})
    environ["PYTHONPATH"] = f"{environ.get('PYTHONPATH', '')}:{REPOSITORY}"
    done = subprocess.run(
        [environment.python, "-m", "lockstep.onhost", "engine-check", str(record)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    if not record.exists():
        return {"exit": done.returncode, "faults": done.stderr.splitlines()[-3:]}
    said: dict[str, Any] = {"exit": done.returncode, **json.loads(record.read_text())}
    return said


def _package(environment: Environment) -> Path:
    return Path(environment.said(_WHERE).splitlines()[-1])


def _links(package: Path, into: Path, without: Path) -> Path:
    """A folder with vLLM's package as links, less one file."""
    for folder, _, names in os.walk(package):
        there = Path(folder)
        here = into / package.name / there.relative_to(package)
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            if there / name != without and not (here / name).is_symlink():
                (here / name).symlink_to(there / name)
    return into


def text(found: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    rows = [
        [name, *page.row(seen, ("exit",)), _agreed(seen), "; ".join(seen["faults"])[:400] or "none"]
        for name, seen in found.items()
    ]
    heads = ("environment", "exit", "kernels, difference from PyTorch", "faults")
    return "\n\n".join(["## Engine check", page.table(heads, rows)])


def _agreed(seen: Mapping[str, Any]) -> str:
    said = [f"{part} {share:.1%}" for part, share in seen.get("agreed", {}).items()]
    return ", ".join([*said, *seen.get("unasked", [])]) or "none"
