"""Results as one self-contained HTML page: plots and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from lockstep.bench.prompts import TECHNICAL
from lockstep.bench.results import Result, SuiteResult
from lockstep.bench.svg import bars
from lockstep.bench.table import rows

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 780px; margin: 2rem auto; padding: 0 1rem;
  color: #1d2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h3 { font-size: 1rem }
table { border-collapse: collapse; width: 100%; margin: .6rem 0 }
td, th { text-align: left; padding: .15rem .6rem .15rem 0; vertical-align: top;
  border-bottom: 1px solid #e4e7ec; overflow-wrap: anywhere }
svg { width: 100%; height: auto; margin: .6rem 0 } svg text { font: 12px system-ui, sans-serif }
svg .title { font-weight: 600 } .bar { fill: #4c78a8 }
.whisker { stroke: #1d2430; stroke-width: 1.5; fill: none }
.measured { color: #14713d } .refused { color: #8a6100 }
.suspect { color: #b3261e; font-weight: 600 }
small { color: #5b6472 }
"""


def page(results: Sequence[Result]) -> str:
    """The whole page, newest result first; history needs at least two with a lock."""
    ordered = sorted(results, key=lambda result: result.began)
    body = [
        "<h1>Lockstep: measured</h1>",
        f"<p>{len(ordered)} result(s). A suite whose ruler was suspect has no figure.</p>",
        *_history(ordered),
        *(part for result in reversed(ordered) for part in _result(result)),
    ]
    head = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    title = "<title>Lockstep: measured</title>"
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return "\n".join(
        (head, view, title, f"<style>{_STYLE}</style></head><body>", *body, "</body></html>\n")
    )


def _history(results: Sequence[Result]) -> Iterator[str]:
    """Decode of each subject over its results, each named by its lock."""
    by_subject: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for result in results:
        decode = result.suite("decode")
        if decode and decode.summary:
            label = f"{(result.subject.lock or 'no lock')[:8]} {result.began[5:10]}"
            speed = decode.summary["by_shape"][TECHNICAL]["decode_tok_s"]
            by_subject.setdefault(_name(result), []).append((label, speed))
    for name, speeds in by_subject.items():
        if len(speeds) > 1:
            yield f"<h2>History by lock: {escape(name)}</h2>"
            yield bars("decode, technical prompt", "tok/s", speeds)


def _result(result: Result) -> Iterator[str]:
    about = result.subject
    yield f"<h2>{escape(_name(result))} <small>{escape(result.began)}</small></h2>"
    facts = {
        "model": about.model,
        "recipe": about.recipe,
        "engine": " ".join(filter(None, (about.engine, about.version))),
        "image": about.image,
        "revision": about.revision,
        "generation": about.generation,
        "lock": about.lock,
        "lockstep": result.lockstep,
        "flags": " ".join(about.flags),
    }
    yield _table((key, value) for key, value in facts.items() if value)
    for suite in result.suites:
        yield from _suite(suite)


def _suite(suite: SuiteResult) -> Iterator[str]:
    yield f'<h3>{escape(suite.name)}: <span class="{suite.verdict}">{suite.verdict}</span></h3>'
    if suite.refused:
        yield f"<p>The engine says: {escape(suite.refused)}</p>"
    yield from _plots(suite)
    if suite.summary:
        yield _table(rows(suite.summary))
    for note in suite.notes:
        yield f"<p>{escape(note)}</p>"
    yield "<details><summary>Checks of the ruler</summary>"
    yield _table((f"{check.verdict} {check.name}", check.detail) for check in suite.checks)
    yield "</details>"


def _plots(suite: SuiteResult) -> Iterator[str]:
    plots = (
        ("by_shape", "decode_tok_s", "Decode by prompt shape", "tok/s"),
        ("by_shape", "acceptance", "Accepted share of drafted tokens", ""),
        ("by_size", "prefill_tok_s", "Prefill by length of the prompt", "tok/s"),
        ("by_streams", "total_tok_s", "All streams together", "tok/s"),
    )
    for group, key, title, unit in plots:
        found = [
            (name, figures[key])
            for name, figures in suite.summary.get(group, {}).items()
            if figures.get(key) is not None
        ]
        if found:
            yield bars(title, unit, found)


def _name(result: Result) -> str:
    about = result.subject
    return " · ".join(filter(None, (about.host, about.target))) or about.url


def _table(pairs: Any) -> str:
    cells = (f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in pairs)
    return f"<table>{''.join(cells)}</table>"
