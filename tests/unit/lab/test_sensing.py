"""Planted nonsense of the stand-in engines is found, each kind; the long run is a script."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

# Starts engines, and looks at each a dozen times.
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "proofs" / "sensing.py"


@pytest.fixture(scope="module")
def sensing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sensing", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_corruption_is_found_and_none_is_invented(
    tmp_path: Path, sensing: ModuleType, engine: str
) -> None:
    with sensing.standin(engine, str(tmp_path)) as url:
        for kind in ("", *sensing.CORRUPTIONS, ""):
            verdict = sensing.judge_start(url, random.Random(kind), engine, kind)
            expected_state = "nonsense" if kind else "sound"
            assert verdict.state == expected_state, (kind, verdict.words)
