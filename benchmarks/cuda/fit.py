"""Fit: Lockstep's prediction beside the engine's own figures, for each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cuda import log, page
from benchmarks.cuda.card import Card
from benchmarks.cuda.cases import CASES, Case, command, predicted_fit
from benchmarks.cuda.server import MODEL, Environment, Server, serving
from lockstep.bench.client import Client
from lockstep.bench.prompts import filler, user
from lockstep.bench.sample import Ask
from lockstep.fit.fit import Fit
from lockstep.onhost import engines

_LONG_S = 240.0


def measure(
    environment: Environment, folders: Path, names: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Start each case once."""
    for name in names:
        yield name, _case(environment, CASES[name], folders)


def _case(environment: Environment, case: Case, folders: Path) -> dict[str, Any]:
    card = environment.card
    version = environment.program_output(
        "import importlib.metadata as m; print(m.version('vllm'))"
    ).strip()
    case, forecast = prediction(case, card, folders, version)
    words, variables = command(case, folders)
    with serving(environment, case.name, words, variables) as (
        server,
        ready,
    ):
        figures = {**ready, **log.memory(server.lines()), "words": list(words)}
        if "failed" not in ready:
            figures |= {"after": _answer_figures(server, forecast)}
        if server.living():
            figures |= {
                "compiled": log.compilation_lines(server.lines()),
                "end": server.stop(),
            }
    return {**figures, **_beside(forecast, figures, card.total_gib)}


def prediction(case: Case, card: Card, folders: Path, version: str) -> tuple[Case, Fit]:
    """The case as it is started, and Lockstep's prediction for it on this card."""
    forecast = predicted_fit(case, card, folders, version)
    if case.longest:
        case = replace(case, overrides={**case.overrides, "max_model_len": _longest(forecast)})
        forecast = predicted_fit(case, card, folders, version)
    return case, forecast


def _longest(forecast: Fit) -> int:
    """The longest context that the better case promises a dense model, less 3 percent."""
    assert forecast.context and forecast.room_gib and forecast.sequence_gib
    return int(0.97 * forecast.context * forecast.room_gib[1] / forecast.sequence_gib)


def _beside(forecast: Fit, figures: Mapping[str, Any], total_gib: float) -> dict[str, float | None]:
    """Prediction over observation, where both exist."""
    weights = sum(term.gib for term in forecast.terms if term.name in ("weights", "draft"))
    gib_per_sequence = None
    if "kv_gib" in figures and "sequences" in figures:
        gib_per_sequence = figures["kv_gib"] / figures["sequences"]
    budget_gib = forecast.budget_gib
    return {
        "weights_ratio": weights / figures["weights_gib"] if "weights_gib" in figures else None,
        "sequence_gib": forecast.sequence_gib,
        "sequence_ratio": forecast.sequence_gib / gib_per_sequence
        if gib_per_sequence and forecast.sequence_gib
        else None,
        "room_gib": forecast.room_gib[1] if forecast.room_gib else None,
        "room_ratio": forecast.room_gib[1] / figures["kv_gib"]
        if forecast.room_gib and gib_per_sequence
        else None,
        "overhead_gib": budget_gib - figures["weights_gib"] - figures["kv_gib"]
        if budget_gib and "kv_gib" in figures and "weights_gib" in figures
        else None,
        "beyond_share_gib": figures["used_gib"] - budget_gib
        if budget_gib and "used_gib" in figures
        else None,
    }


def _answer_figures(server: Server, forecast: Fit) -> dict[str, Any]:
    """One answer with its draft's counters, and one prompt as long as the context."""
    client = Client(server.url, MODEL)
    client.complete(Ask("x", user("Tell."), 128, ignore_eos=True))
    counters = engines.counters(client.get("/metrics") or "")
    gauge = client.complete(Ask("gauge", user(filler(200)), 1))
    figures: dict[str, Any] = {}
    if counters and counters.drafted_tokens:
        figures |= {
            "drafted_tokens": counters.drafted_tokens,
            "accepted_tokens": counters.accepted_tokens,
        }
    if gauge.prompt_tokens and forecast.context:
        count = int((forecast.context - 200) / (gauge.prompt_tokens / 201))
        ask = Ask("long", user(filler(count)), 1, timeout_s=_LONG_S)
        long = client.complete(ask)
        figures |= {
            "long_prompt_tokens": long.prompt_tokens,
            "long_prompt_s": long.seconds,
            "long_prompt_fault": long.fault or long.refusal,
        }
    return figures


def text(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The stage's part of the page."""
    heads = (
        *("case", "ready, s", "weights, GiB", "predicted / said", "KV cache, GiB"),
        *("predicted / said", "tokens", "sequences", "one sequence, predicted / said"),
        "overhead, GiB",
        "beyond its share, GiB",
    )
    rows = []
    for name, figures in results.items():
        if "kv_gib" not in figures:
            rows.append([name, f"did not start: {' '.join(figures['reason'][-1:])[:160]}"])
            continue
        rows.append([
            name,
            *page.row(figures, ("seconds", "weights_gib")),
            *page.row(figures, ("weights_ratio",), 3),
            *page.row(figures, ("kv_gib",)),
            *page.row(figures, ("room_ratio",), 3),
            *page.row(figures, ("kv_tokens",), 0),
            *page.row(figures, ("sequences",)),
            *page.row(figures, ("sequence_ratio",), 3),
            *page.row(figures, ("overhead_gib", "beyond_share_gib")),
        ])  # fmt: skip
    draft_rows = [
        [name, *page.row(figures["after"], ("drafted_tokens", "accepted_tokens"))]
        for name, figures in results.items()
        if "drafted_tokens" in figures.get("after", {})
    ]
    longest = [
        [name, *page.row(figures["after"], ("long_prompt_tokens", "long_prompt_s"))]
        for name, figures in results.items()
        if figures.get("after", {}).get("long_prompt_tokens")
    ]
    return "\n\n".join([
        "## Fit",
        page.table(heads, rows),
        page.table(("case", "drafted tokens", "accepted"), draft_rows),
        page.table(("case", "tokens of the longest prompt", "seconds"), longest),
    ])  # fmt: skip
