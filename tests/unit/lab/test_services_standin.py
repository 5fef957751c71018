"""Stand-in engines talk nonsense as real ones did, and the product's check finds it."""

import os
import random
import subprocess
from pathlib import Path

import pytest
from fork import Fork
from lab_servers import ask, free_port, until

from lab.content.standin import engine as standin
from lab.content.standin.corruption import CORRUPTIONS
from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, sense_check

# Each starts an engine.
pytestmark = pytest.mark.slow
# Corruptions that only two answers at the same time show: each of them then lasts a second.
UNDER_LOAD = ("under-load", "swapped")


def judge_start(
    url: str, dice: random.Random, engine: str, corruption: str
) -> sense_check.SenseVerdict:
    """Judge one start of a chosen engine: its test question, and its sense."""
    quirks = {
        "refuse_template": dice.random() < 0.3,
        "refuse_logprobs": dice.random() < 0.3 and corruption != "nan",
        "always_thinks": dice.random() < 0.3,
        "decode_rate": 100 if corruption in UNDER_LOAD else dice.choice((300, 1000, 5000)),
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
    port = free_port()
    knobs = dict.fromkeys(
        ("STANDIN_NEED_MODEL", "STANDIN_LOAD_SECONDS", "STANDIN_NEED_MEMORY"), "0"
    )
    places = {"STANDIN_RECORD": str(tmp_path / "argv.json"), "HF_HOME": str(tmp_path)}
    environment = {"PATH": os.environ["PATH"], "STANDIN_KNOBS_FOLDER": str(tmp_path)}
    words = ["some/model"] if engine == "vllm" else ["--model-path", "some/model"]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with Fork(
        lambda: standin.serve(engine, "9.9", [engine, *words], words),
        env={**environment, **knobs, **places},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            until(lambda: ask(f"{url}/health").status == 200, "ready")
            for kind in ("", *CORRUPTIONS, ""):
                verdict = judge_start(url, random.Random(kind), engine, kind)
                expected_state = "nonsense" if kind else "sound"
                assert verdict.state == expected_state, (kind, verdict.words)
        finally:
            process.kill()
