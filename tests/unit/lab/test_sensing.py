"""Planted nonsense of the stand-in engines is found, each kind, and none is invented."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_servers import CONTENT, ask, free_port, program, until

from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, sense_check

sys.path.append(str(CONTENT))
from standin.corruption import CORRUPTIONS

# Starts engines, and looks at each a dozen times.
pytestmark = pytest.mark.slow

_CODE = """
import sys
from standin import engine
sys.exit(engine.serve(sys.argv[1], "9.9", sys.argv, sys.argv[2:]))
"""


@contextlib.contextmanager
def standin(name: str, folder: str) -> Iterator[str]:
    """The address of a stand-in engine of that name."""
    port = free_port()
    model = ["some/model"] if name == "vllm" else ["--model-path", "some/model"]
    knobs = {"NEED_MODEL": 0, "LOAD_SECONDS": 0, "NEED_MEMORY": 0}
    environment = {f"STANDIN_{key}": str(value) for key, value in knobs.items()}
    environment |= {"STANDIN_RECORD": f"{folder}/argv.json", "STANDIN_KNOBS_FOLDER": folder}
    command = [name, *model, "--host", "127.0.0.1", "--port", str(port)]
    with program(_CODE, command, **environment, HF_HOME=folder):
        url = f"http://127.0.0.1:{port}"
        until(lambda: ask(f"{url}/health").status == 200, "ready")
        yield url


def judge_start(
    url: str, dice: random.Random, engine: str, corruption: str
) -> sense_check.SenseVerdict:
    """Judge one start of a chosen engine: its test question, and its sense."""
    quirks = {
        "refuse_template": dice.random() < 0.3,
        "refuse_logprobs": dice.random() < 0.3 and corruption != "nan",
        "always_thinks": dice.random() < 0.3,
        "decode_rate": dice.choice((300, 1000, 5000)),
        "corruption": corruption,
    }
    assert ask(f"{url}/standin/knob", quirks).status == 200
    model = config.Model(
        "planted", "planted.service", url, "some/model", 1.0, engine=engine, tools=True
    )
    if corruption != "empty":
        openai_api.ask_test_question(model, None, 60.0)
    return sense_check.judge_engine_sense(model, None)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_corruption_is_found_and_none_is_invented(tmp_path: Path, engine: str) -> None:
    with standin(engine, str(tmp_path)) as url:
        for kind in ("", *CORRUPTIONS, ""):
            verdict = judge_start(url, random.Random(kind), engine, kind)
            expected_state = "nonsense" if kind else "sound"
            assert verdict.state == expected_state, (kind, verdict.words)
