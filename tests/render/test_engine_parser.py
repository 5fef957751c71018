"""Every vLLM command line of the catalogue passes the parser of the pinned vLLM.

Needs an interpreter that has vLLM (the CPU build will do): LOCKSTEP_VLLM_PYTHON=/path/to/python.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lockstep import catalogue as catalogues
from lockstep.command import environment, serve_command
from lockstep.onhost import engine_check
from lockstep.recipes import Recipe

PYTHON = os.environ.get("LOCKSTEP_VLLM_PYTHON")
PINNED = "0.32.0"
# Flags and a variable of that image's own vLLM; its engine_versions say so.
FOREIGN = {"gpt-oss-120b"}

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="set LOCKSTEP_VLLM_PYTHON to an interpreter that has vLLM"
)


def question(recipe: Recipe) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "argv": serve_command(recipe, engine_version=PINNED),
        "environment": environment(recipe, engine_version=PINNED),
    }


def ask(questions: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    record = folder / "record.json"
    text = json.dumps({"id": "x", "engine_cuda": None, "recipes": questions})
    subprocess.run(
        [str(PYTHON), engine_check.__file__, str(record)],
        env={**os.environ, "LOCKSTEP_ENGINE": text, "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": ""},
        check=False,
        capture_output=True,
        timeout=300,
    )
    answer: dict[str, Any] = json.loads(record.read_text())
    return answer


def test_the_engine_accepts_the_catalogue_and_names_a_removed_flag(tmp_path: Path) -> None:
    recipes = [item for item in catalogues.load().recipes.values() if item.engine == "vllm"]
    removed = question(recipes[0]) | {"name": "removed"}
    removed["argv"] = (*removed["argv"], "--disable-log-requests")
    record = ask([*map(question, recipes), removed], tmp_path)
    assert str(record["version"]).startswith(PINNED)
    refused = {fault.split()[1].rstrip(":"): fault for fault in record["faults"]}
    assert set(refused) == {*FOREIGN, "removed"}, "\n".join(record["faults"])
    assert "--disable-log-requests" in refused["removed"]
