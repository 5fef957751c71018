"""Planted nonsense and clean runs of the stand-in engine: all found, none invented.

    python tests/proofs/sensing.py --runs 1000 --seed 1 --file sensing.jsonl

Each run starts no lab: a stand-in engine is a process on this machine, and `sense` asks it as a
unit's start does. A seed decides engine, quirks and timing of each run. Every corruption is planted
in turn after the clean runs. A line per run goes to the file, and a run that stands in it is not
made again. Exit code 0 when all is as it should be.
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


def looked(url: str, dice: random.Random, engine: str, corruption: str) -> sense.Verdict:
    """One start of a chosen engine: its canary, and its look."""
    quirks = {
        "refuse_template": dice.random() < 0.3,
        "refuse_logprobs": dice.random() < 0.3 and corruption != "nan",
        "always_thinks": dice.random() < 0.3,
        "decode_rate": dice.choice((300, 1000, 5000)),
        "corruption": corruption,
    }
    assert ask(f"{url}/standin/knob", quirks).status == 200
    target = config.Target(
        "planted",
        "planted.service",
        url,
        "some/model",
        1.0,
        60.0,
        engine=engine,
        sense="answers",
        tools=True,
    )
    if corruption not in ("empty",):
        openai_api.canary(target, None, 60.0)
    return sense.look(target, None)


def main() -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="clean runs")
    parser.add_argument("--planted", type=int, default=20, help="runs of each corruption")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, default=Path("sensing.jsonl"))
    options = parser.parse_args()
    plan = ["", *CORRUPTIONS] if options.runs else list(CORRUPTIONS)
    wanted = [
        (kind, number)
        for kind in plan
        for number in range(options.planted if kind else options.runs)
    ]
    known = options.file.read_text().splitlines() if options.file.exists() else []
    done = {(one["corruption"], one["run"]) for one in map(json.loads, known)}
    left = [each for each in wanted if each not in done]
    with options.file.open("a") as file:
        for first in range(0, len(left), _RUNS_EACH):
            some = left[first : first + _RUNS_EACH]
            engine = random.Random(f"{options.seed} {some[0]}").choice(("vllm", "sglang"))
            with tempfile.TemporaryDirectory() as folder, standin(engine, folder) as url:
                for kind, number in some:
                    dice = random.Random(f"{options.seed} {kind} {number}")
                    verdict = looked(url, dice, engine, kind)
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
    """Print what was found of what, and 1 where a run is not as it should be."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = 0
    for kind in ("", *CORRUPTIONS):
        runs = [line for line in lines if line["corruption"] == kind]
        found = sum(line["state"] == "nonsense" for line in runs)
        wrong += len(runs) - found if kind else found
        print(f"{kind or 'clean':14} {len(runs):5} runs, nonsense {found}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
