"""Results as one self-contained HTML page: plots and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.bench.prompts import TECHNICAL
from lockstep.bench.results import Result, SuiteResult
from lockstep.bench.table import number, rows
from lockstep.files.templating import render_template

# In units of the picture: the start of the bars, and the longest bar. Names stand before the bars,
# figures behind them.
LEFT, LONGEST = 190, 420
# The group of a suite's figures, the figure, and the title and unit of its plot.
_PLOTS = (
    ("by_shape", "decode_tok_s", "Decode by prompt shape", "tok/s"),
    ("by_shape", "acceptance", "Accepted share of drafted tokens", ""),
    ("by_size", "prefill_tok_s", "Prefill by length of the prompt", "tok/s"),
    ("by_streams", "total_tok_s", "All streams together", "tok/s"),
)


def page(results: Sequence[Result]) -> str:
    """Render the whole page, newest result first; the history needs two results with a lock."""
    in_order = sorted(results, key=lambda result: result.began)
    shown_suites = [
        (
            _name(result),
            result,
            [
                (suite, list(_plots(suite)), list(rows(suite.summary)), list(_checks(suite)))
                for suite in result.suites
            ],
        )
        for result in reversed(in_order)
    ]
    return render_template(
        "page/bench.html.j2", results=shown_suites, history=list(_history(in_order))
    )


def _history(results: Sequence[Result]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the decode rates of each subject over its results, each labelled by its lock."""
    by_subject: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for result in results:
        decode = result.suite("decode")
        if decode and decode.summary:
            label = f"{(result.subject.lock or 'no lock')[:8]} {result.began[5:10]}"
            speed = decode.summary["by_shape"][TECHNICAL]["decode_tok_s"]
            by_subject.setdefault(_name(result), []).append((label, speed))
    for name, speeds in by_subject.items():
        if len(speeds) > 1:
            yield name, _bars("decode, technical prompt", "tok/s", speeds)


def _checks(suite: SuiteResult) -> Iterator[tuple[str, str]]:
    for check in suite.checks:
        yield f"{check.verdict} {check.name}", check.detail


def _plots(suite: SuiteResult) -> Iterator[dict[str, Any]]:
    for group, key, title, unit in _PLOTS:
        levels = suite.summary.get(group, {}).items()
        points = [(name, figures[key]) for name, figures in levels if figures.get(key) is not None]
        if points:
            yield _bars(title, unit, points)


def _bars(title: str, unit: str, values: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a plot of bars from zero by name and spread (`results.spread`), with their ends."""
    scale = LONGEST / (max(spread["high"] for _, spread in values) or 1.0)
    bars = [
        {
            "name": name,
            "width": round(spread["mean"] * scale, 1),
            "low": round(LEFT + spread["low"] * scale, 1),
            "high": round(LEFT + spread["high"] * scale, 1),
            "figure": number(spread["mean"]),
        }
        for name, spread in values
    ]
    return {"title": title, "unit": unit, "bars": bars}


def _name(result: Result) -> str:
    about = result.subject
    return " · ".join(filter(None, (about.host, about.model))) or about.url
