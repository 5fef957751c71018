"""Comparison: pairs of runs of one server, and pairs whose second run is slower by 5 percent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cuda import REPOSITORY, page, slower
from benchmarks.cuda.cases import CASES, command
from benchmarks.cuda.server import MODEL, Environment, Server, serving
from lockstep.bench.client import Client
from lockstep.bench.prompts import user
from lockstep.bench.sample import Ask

# Large enough that the GPU, and not the processor, sets its pace.
CASE = "qwen3-8b"
PAIRS = 20
SLOWER = 0.05
# Cycles that an H200 runs in a millisecond.
_MOST_CYCLES = 2_000_000
# Some four seconds on a fast engine; dummy weights answer the same question twice differently.
_RUN = ("--suite", "decode", "--quick", "--repeat", "10", "--tokens", "64", "--waive", "same")


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Equal pairs, and as many with a planted slow-down, as `lockstep bench compare` judges."""
    words, variables = command(CASES[CASE], folders)
    file = environment.folder / "slower"
    plugin = _plugin(environment.folder / "plugin")
    variables |= {
        slower.VARIABLE: str(file),
        "PYTHONPATH": f"{environment.environ().get('PYTHONPATH', '')}:{plugin}:{REPOSITORY}",
    }
    runs = []
    with serving(environment, f"{CASE}-compare", words, variables) as (server, ready):
        yield "ready", ready
        if "failed" in ready:
            return
        cycles, planted_share = _find_slowdown(server, file)
        yield "planted", planted_share
        for number in range(PAIRS):
            first, equal = (_run(environment, server, f"{number}-{name}") for name in ("a", "b"))
            file.write_text(str(cycles))
            runs.append((first, equal, _run(environment, server, f"{number}-slower")))
            file.unlink()
    with ThreadPoolExecutor(4) as pool:
        yield (
            "equal",
            list(pool.map(_pair_verdicts, *zip(*((a, b) for a, b, _ in runs), strict=True))),
        )
        yield (
            "slower",
            list(pool.map(_pair_verdicts, *zip(*((a, c) for a, _, c in runs), strict=True))),
        )


def _plugin(folder: Path) -> Path:
    """Make a folder that announces this package's plugin to vLLM."""
    target_path = folder / "lockstep_slower-0.dist-info"
    target_path.mkdir(parents=True, exist_ok=True)
    (target_path / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lockstep-slower\nVersion: 0\n"
    )
    entry = "[vllm.general_plugins]\nslower = benchmarks.cuda.slower:register\n"
    (target_path / "entry_points.txt").write_text(entry)
    return folder


def _find_slowdown(server: Server, file: Path) -> tuple[int, float]:
    """Find the cycles for a slow-down by `SLOWER`, and the share by which they lengthen a token.

    The first part of a delay may hide behind the processor's own work, so the cycles are found by
    trying.

    Raises:
        RuntimeError: no number of cycles gives that share.
    """
    client = Client(server.url, MODEL)

    def step_s() -> float:
        asks = [Ask("x", user(f"Tell {n}."), 256, ignore_eos=True) for n in range(3)]
        rates = [client.complete(ask).decode_rate for ask in asks]
        return 1 / median(rate for rate in rates if rate)

    step_s()
    plain, low, high = step_s(), 0, _MOST_CYCLES
    for _ in range(12):
        cycles = (low + high) // 2
        file.write_text(str(cycles))
        share = step_s() / plain - 1
        file.unlink()
        if abs(share - SLOWER) < SLOWER / 20:
            return cycles, share
        low, high = (cycles, high) if share < SLOWER else (low, cycles)
    raise RuntimeError(f"no delay makes a token longer by {SLOWER:.0%}: {share:.1%} at {cycles}")


def _lockstep(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lockstep.cli.main", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )


def _run(environment: Environment, server: Server, name: str) -> Path:
    path = environment.folder / f"run-{name}.json"
    result = _lockstep("bench", server.url, *_RUN, "-o", str(path))
    # A run that is suspect stays: comparing it must then not give a verdict.
    if not path.exists():
        raise RuntimeError(f"{name}: {result.stdout}{result.stderr}")
    return path


def _pair_verdicts(first: Path, second: Path) -> dict[str, Any]:
    """The command's verdict on a pair: its exit code, and the verdict on each figure."""
    result = _lockstep("bench", "compare", str(first), str(second), "--json")
    output = json.loads(result.stdout) if result.stdout else result.stderr
    return {"exit": result.returncode, "said": output}


def text(results: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    right = {"equal": 0, "slower": 1}
    pairs = {"equal": "one server twice", "slower": "the second slower"}
    rows = [
        [pairs[name], *page.row(results if name == "slower" else {"planted": 0.0}, ("planted",), 3),
         f"{sum(pair['exit'] == code for pair in results[name])} of {len(results[name])}"]
        for name, code in right.items()
        if name in results
    ]  # fmt: skip
    heads = ("pairs", "planted, share of a step", "judged rightly")
    return "\n\n".join(["## Comparison", page.table(heads, rows)])
