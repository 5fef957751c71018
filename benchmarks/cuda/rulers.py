"""Ruler: ours beside the engine's own benchmark, in turn, at 1, 8 and 64 streams."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import side_by_side
from benchmarks.cuda import REPOSITORY, page
from benchmarks.cuda.cases import CASES, command
from benchmarks.cuda.server import MODEL, Environment, serving

CASE = "qwen3-8b"
ROUNDS = 5


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Both rulers' figures of one engine."""
    case = CASES[CASE]
    words, variables = command(case, folders)
    with serving(environment, f"{CASE}-ruler", words, variables) as (server, ready):
        yield "ready", ready
        if "failed" in ready:
            return
        job = side_by_side.Job(
            server.url, MODEL, str(folders / case.checkpoint), ROUNDS, streams=(1, 8, 64)
        )
        rows = _measured_rows(environment, job)
    yield "faults", [fault for row in rows for fault in row.faults]
    ratios = side_by_side.ratios(rows)
    yield "ratios", list(map(_ratio_row, ratios))


def _ratio_row(ratio: side_by_side.Ratio) -> dict[str, Any]:
    return {
        "name": ratio.name,
        "streams": ratio.streams,
        "ours": ratio.our_spread,
        "theirs": ratio.their_spread,
        "ratio": ratio.ratio,
    }


def _measured_rows(environment: Environment, job: side_by_side.Job) -> list[side_by_side.Row]:
    environ = environment.environ()
    environ["PYTHONPATH"] = f"{REPOSITORY}:{environ.get('PYTHONPATH', '')}"
    result = subprocess.run(
        [environment.python, "-m", "benchmarks.side_by_side"],
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr[-2000:])
    return side_by_side.read(result.stdout)


def text(results: Mapping[str, Any]) -> str:
    """The stage's part of the page."""
    rows = [
        [ratio["name"], ratio["streams"], *(_spread(ratio[ruler]) for ruler in ("ours", "theirs")),
         page.figure(ratio, "ratio", 4)]
        for ratio in results.get("ratios", [])
    ]  # fmt: skip
    heads = ("figure", "streams", "ours (middle half)", "the engine's own", "ratio")
    return "\n\n".join(["## Ruler", page.table(heads, rows)])


def _spread(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.4g} ({values[1]:.4g} to {values[2]:.4g})"
