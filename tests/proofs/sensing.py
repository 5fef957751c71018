"""Planted nonsense and clean runs of the stand-in engine: all found, none invented.

    python tests/proofs/sensing.py --runs 1000 --seed 1 --file sensing.jsonl

Each run starts no lab: a stand-in engine is a process on this machine, and `sense` asks it as a
unit's start does. A seed decides engine, quirks and timing of each run. Every corruption is planted
in turn after the clean runs. A line per run goes to the file, and a recorded run is not made
again. Exit code 0 when all is as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers"), str(ROOT / "lab/content")]

from lab_servers import ask, free_port, program, until  # noqa: E402
from standin.corruption import CORRUPTIONS  # noqa: E402

from lockstep.onhost.core import config  # noqa: E402
from lockstep.onhost.engine import openai_api, sense  # noqa: E402

_CODE = """
import sys
from standin import engine
sys.exit(engine.serve(sys.argv[1], "9.9", sys.argv, sys.argv[2:]))
"""
# Runs of one engine process: a start takes longer than a look.
_RUNS_EACH = 50


@contextlib.contextmanager
def standin(name: str, folder: str, *words: str) -> Iterator[str]:
    """The address of a stand-in engine of that name."""
    port = free_port()
    model = ["some/model"] if name == "vllm" else ["--model-path", "some/model"]
    knobs = {"NEED_MODEL": 0, "LOAD_SECONDS": 0, "NEED_MEMORY": 0}
    environment = {f"STANDIN_{key}": str(value) for key, value in knobs.items()}
    environment |= {"STANDIN_RECORD": f"{folder}/argv.json", "STANDIN_KNOBS_FOLDER": folder}
    command = [name, *model, "--host", "127.0.0.1", "--port", str(port), *words]
    with program(_CODE, command, **environment, HF_HOME=folder):
        url = f"http://127.0.0.1:{port}"
        until(lambda: ask(f"{url}/health").status == 200, "ready")
        yield url


def judge_start(url: str, dice: random.Random, engine: str, corruption: str) -> sense.SenseVerdict:
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
        "planted",
        "planted.service",
        url,
        "some/model",
        1.0,
        60.0,
        engine=engine,
        tools=True,
    )
    if corruption not in ("empty",):
        openai_api.ask_test_question(model, None, 60.0)
    return sense.judge_engine_sense(model, None)


def main() -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="clean runs")
    parser.add_argument("--planted", type=int, default=20, help="runs of each corruption")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, default=Path("sensing.jsonl"))
    options = parser.parse_args()
    plan = ["", *CORRUPTIONS] if options.runs else list(CORRUPTIONS)
    wanted_runs = [
        (kind, number)
        for kind in plan
        for number in range(options.planted if kind else options.runs)
    ]
    earlier_lines = options.file.read_text().splitlines() if options.file.exists() else []
    finished_runs = {
        (record["corruption"], record["run"]) for record in map(json.loads, earlier_lines)
    }
    remaining_runs = [run for run in wanted_runs if run not in finished_runs]
    with options.file.open("a") as file:
        for first in range(0, len(remaining_runs), _RUNS_EACH):
            some = remaining_runs[first : first + _RUNS_EACH]
            engine = random.Random(f"{options.seed} {some[0]}").choice(("vllm", "sglang"))
            with tempfile.TemporaryDirectory() as folder, standin(engine, folder) as url:
                for kind, number in some:
                    dice = random.Random(f"{options.seed} {kind} {number}")
                    verdict = judge_start(url, dice, engine, kind)
                    line = {
                        "corruption": kind,
                        "run": number,
                        "engine": engine,
                        "state": verdict.state,
                        "words": verdict.words,
                        "seconds": round(verdict.seconds, 2),
                    }
                    file.write(json.dumps(line) + "\n")
                    file.flush()
    return summary(options.file)


def summary(file: Path) -> int:
    """Print the corruptions that were found and missed; 1 if a run is not as it should be."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = 0
    for kind in ("", *CORRUPTIONS):
        runs = [line for line in lines if line["corruption"] == kind]
        nonsense_count = sum(line["state"] == "nonsense" for line in runs)
        wrong += len(runs) - nonsense_count if kind else nonsense_count
        print(f"{kind or 'clean':14} {len(runs):5} runs, nonsense {nonsense_count}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
