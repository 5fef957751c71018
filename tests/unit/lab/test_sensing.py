"""Planted nonsense of the stand-in engines is found, each kind; the long run is a script."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sensing

# Starts engines, and looks at each a dozen times.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_corruption_is_found_and_none_is_invented(tmp_path: Path, engine: str) -> None:
    with sensing.standin(engine, str(tmp_path)) as url:
        for kind in ("", *sensing.CORRUPTIONS, ""):
            verdict = sensing.judge_start(url, random.Random(kind), engine, kind)
            expected_state = "nonsense" if kind else "sound"
            assert verdict.state == expected_state, (kind, verdict.words)
