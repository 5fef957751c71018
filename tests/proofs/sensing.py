"""Planted nonsense and clean runs of the stand-in engine: all found, none invented.

    python tests/proofs/sensing.py --runs 1000 --seed 1 --record FILE

Each run starts no lab: a stand-in engine is a process on this machine, and `sense` asks it as a
unit's start does. A seed decides engine, quirks and timing of each run. Every corruption is planted
in turn after the clean runs.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers"), str(ROOT / "lab/content")]

import runner  # noqa: E402
from lab_servers import ask, free_port, program, until  # noqa: E402
from standin.corruption import CORRUPTIONS  # noqa: E402

from lockstep.onhost.core import config  # noqa: E402
from lockstep.onhost.engine import openai_api, sense_check  # noqa: E402

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
        "planted",
        "planted.service",
        url,
        "some/model",
        1.0,
        engine=engine,
        tools=True,
    )
    if corruption not in ("empty",):
        openai_api.ask_test_question(model, None, 60.0)
    return sense_check.judge_engine_sense(model, None)


@dataclass
class Run(runner.Run):
    """One look at an engine: what was planted, and what was found."""

    corruption: str = ""
    engine: str = ""
    state: str = ""
    words: str = ""

    @property
    def key(self) -> object:
        """Each corruption has its own numbers."""
        return self.corruption, self.number


def prove(trial: runner.Trial[Run]) -> None:
    """Make the clean runs, and then those of each corruption."""
    options = trial.options
    remaining_runs = list(
        trial.remaining(
            Run(number, corruption=kind)
            for kind in ("", *CORRUPTIONS)
            for number in range(options.planted if kind else options.runs)
        )
    )
    for first in range(0, len(remaining_runs), _RUNS_EACH):
        some = remaining_runs[first : first + _RUNS_EACH]
        engine = trial.chance((some[0].corruption, some[0].number)).choice(("vllm", "sglang"))
        with tempfile.TemporaryDirectory() as folder, standin(engine, folder) as url:

            def look(run: Run, url: str = url, engine: str = engine) -> None:
                dice = trial.chance(run.corruption, run.number)
                verdict = judge_start(url, dice, engine, run.corruption)
                run.engine, run.state, run.words = engine, verdict.state, verdict.words
                if (run.state == "nonsense") != bool(run.corruption):
                    run.violations.append(f"{run.corruption or 'clean'}: {run.state}: {run.words}")

            for run in trial.remaining(some):
                trial.make(run, look)


def figures(trial: runner.Trial[Run]) -> Iterator[str]:
    """The counts of each corruption."""
    for kind in ("", *CORRUPTIONS):
        runs = [run for run in trial.runs if run.corruption == kind]
        yield runner.counts(kind or "clean", (run.state for run in runs))


PROOF = runner.Proof(
    __doc__,
    "",
    Run,
    prove,
    figures,
    {
        "runs": {"type": int, "default": 1000, "help": "clean runs"},
        "planted": {"type": int, "default": 20, "help": "runs of each corruption"},
    },
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
