"""The product against a real GPU: fit, ruler, comparison, faults, two ranks, sense.

usage: python -m benchmarks.cuda --python PYTHON-OF-THE-ENGINE [STAGE ...]

Runs on any machine with an NVIDIA GPU and an environment with vLLM, a Spark included, on the first
GPU (`ranks`: on the first two), which nothing else may use. Needs no network and no weights:
engines are started with configurations of real models and weights of no meaning. Writes
OUT/cuda.json after each stage, and OUT/cuda.md with the figures that were measured.

exit codes: 0 every stage ran, 1 a stage did not, 2 wrong use, or there is no GPU
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.cuda import comparison, faults, fit, page, ranks, rulers, senses
from benchmarks.cuda.card import card
from benchmarks.cuda.cases import CASES
from benchmarks.cuda.server import Environment

#: The results of a stage, one part after another.
StageResults = Iterator[tuple[str, Any]]
_VERSIONS = """
import importlib.metadata as m, platform, sys
print(sys.version.split()[0], platform.machine(), *(m.version(n) for n in ("vllm", "torch")))
"""


def main() -> int:
    """Command line; see the module's docstring."""
    options = _options()
    try:
        environment = Environment(
            options.python, options.out.resolve(), card(options.python), dict(options.variable)
        )
    except SystemExit as problem:
        print(problem, file=sys.stderr)
        return 2
    environment.folder.mkdir(parents=True, exist_ok=True)
    folders = environment.folder / "checkpoints"
    stages: dict[str, tuple[Callable[[], StageResults], Callable[[Any], str]]] = {
        "fit": (lambda: fit.measure(environment, folders, options.case or list(CASES)), fit.text),
        "ruler": (lambda: rulers.measure(environment, folders), rulers.text),
        "compare": (lambda: comparison.measure(environment, folders), comparison.text),
        "faults": (lambda: faults.measure(environment, folders), faults.text),
        "ranks": (lambda: ranks.measure(environment, folders), ranks.text),
        "sense": (lambda: senses.measure(environment, folders), senses.text),
    }
    results: dict[str, Any] = {"about": _about(environment)}
    code = 0
    if options.stage != ["sense"]:
        _checkpoints(environment, folders)
    for name in options.stage or stages:
        began = time.monotonic()
        print(f"{name}: begun", flush=True)
        measure = stages[name][0]
        part = results[name] = {}
        try:
            for key, value in measure():
                part[key] = value
                print(f"{name}: {key}, {time.monotonic() - began:.0f} s", flush=True)
                (environment.folder / "cuda.json").write_text(json.dumps(results, indent=1))
        except Exception:
            traceback.print_exc()
            code = 1
        parts = [stages[stage][1](results[stage]) for stage in stages if stage in results]
        parts = [_head(results["about"]), *parts, ""]
        (environment.folder / "cuda.md").write_text("\n\n".join(parts))
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", required=True, help="the engine environment's Python")
    parser.add_argument("--out", type=Path, default=Path("measured/cuda"), help="folder to write")
    parser.add_argument("--case", action="append", choices=list(CASES), help="of `fit`; repeatable")
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        type=lambda text: tuple(text.split("=", 1)),
        metavar="NAME=VALUE",
        help="of each engine's environment; repeatable",
    )
    parser.add_argument(
        "stage",
        nargs="*",
        help="fit, ruler, compare, faults, ranks, sense; without one: all",
    )
    options = parser.parse_args()
    if wrong := set(options.stage) - {"fit", "ruler", "compare", "faults", "ranks", "sense"}:
        parser.error(f"no such stage: {', '.join(sorted(wrong))}")
    return options


def _checkpoints(environment: Environment, folders: Path) -> None:
    kinds = {kind for case in CASES.values() for kind in (case.checkpoint, case.draft) if kind}
    words = [word for kind in sorted(kinds) for word in (kind, str(folders / kind))]
    program = Path(__file__).with_name("checkpoints.py")
    subprocess.run([environment.python, program, *words], check=True, env=environment.environ())


def _about(environment: Environment) -> dict[str, Any]:
    python, machine, vllm, torch = environment.program_output(_VERSIONS).split()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(["python -m benchmarks.cuda", *sys.argv[1:]]),
        "card": vars(environment.card) if hasattr(environment.card, "__dict__") else {},
        "python": python,
        "machine": machine,
        "vllm": vllm,
        "torch": torch,
    }


def _head(about: Mapping[str, Any]) -> str:
    machine = about["card"]
    rows = [(key, about[key]) for key in ("date", "vllm", "torch", "python", "machine", "command")]
    rows += [(key, machine[key]) for key in ("name", "driver", "compute", "total_gib")]
    return "\n\n".join(["# Measured on a GPU", page.table(("of", "is"), rows)])


if __name__ == "__main__":
    sys.exit(main())
