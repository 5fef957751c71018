"""Fit: what Lockstep predicts beside what the engine says of itself, for each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cuda import log, page
from benchmarks.cuda.card import Card
from benchmarks.cuda.cases import CASES, Case, command, predicted
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
    version = environment.said("import importlib.metadata as m; print(m.version('vllm'))").strip()
    case, said = prediction(case, card, folders, version)
    words, variables = command(case, folders)
    with serving(environment, case.name, words, variables) as (
        server,
        ready,
    ):
        seen = {**ready, **log.memory(server.lines()), "words": list(words)}
        if "failed" not in ready:
            seen |= {"after": _after(server, said)}
        if server.living():
            seen |= {
                "compiled": log.compiled(server.lines()),
                "end": server.stopped(),
            }
    return {**seen, **_beside(said, seen, card.total_gib)}


def prediction(case: Case, card: Card, folders: Path, version: str) -> tuple[Case, Fit]:
    """The case as it is started, and what Lockstep predicts of it on this card."""
    said = predicted(case, card, folders, version)
    if case.longest:
        case = replace(case, overrides={**case.overrides, "max_model_len": _longest(said)})
        said = predicted(case, card, folders, version)
    return case, said


def _longest(said: Fit) -> int:
    """The longest context that the better case promises a dense model, less 3 percent."""
    assert said.context and said.room_gib and said.sequence_gib
    return int(0.97 * said.context * said.room_gib[1] / said.sequence_gib)


def _beside(said: Fit, seen: Mapping[str, Any], total_gib: float) -> dict[str, float | None]:
    """Prediction over observation, where there are both."""
    weights = sum(term.gib for term in said.terms if term.name in ("weights", "draft"))
    each = None
    if "kv_gib" in seen and "sequences" in seen:
        each = seen["kv_gib"] / seen["sequences"]
    held = said.budget_gib
    return {
        "weights_ratio": weights / seen["weights_gib"] if "weights_gib" in seen else None,
        "sequence_gib": said.sequence_gib,
        "sequence_ratio": said.sequence_gib / each if each and said.sequence_gib else None,
        "room_gib": said.room_gib[1] if said.room_gib else None,
        "room_ratio": said.room_gib[1] / seen["kv_gib"] if said.room_gib and each else None,
        "overhead_gib": held - seen["weights_gib"] - seen["kv_gib"]
        if held and "kv_gib" in seen and "weights_gib" in seen
        else None,
        "beyond_share_gib": seen["used_gib"] - held if held and "used_gib" in seen else None,
    }


def _after(server: Server, said: Fit) -> dict[str, Any]:
    """One answer with its draft's counters, and one prompt as long as the context."""
    client = Client(server.url, MODEL)
    client.complete(Ask("x", user("Tell."), 128, ignore_eos=True))
    counted = engines.counters(client.get("/metrics") or "")
    gauge = client.complete(Ask("gauge", user(filler(200)), 1))
    found: dict[str, Any] = {}
    if counted and counted.drafted:
        found |= {"drafted": counted.drafted, "accepted": counted.accepted}
    if gauge.prompt_tokens and said.context:
        count = int((said.context - 200) / (gauge.prompt_tokens / 201))
        ask = Ask("long", user(filler(count)), 1, timeout_s=_LONG_S)
        long = client.complete(ask)
        found |= {
            "long_prompt_tokens": long.prompt_tokens,
            "long_prompt_s": long.seconds,
            "long_prompt_fault": long.fault or long.refusal,
        }
    return found


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The stage's part of the page."""
    heads = (
        *("case", "ready, s", "weights, GiB", "predicted / said", "KV cache, GiB"),
        *("predicted / said", "tokens", "sequences", "one sequence, predicted / said"),
        "overhead, GiB",
        "beyond its share, GiB",
    )
    rows = []
    for name, seen in found.items():
        if "kv_gib" not in seen:
            rows.append([name, f"did not start: {' '.join(seen['reason'][-1:])[:160]}"])
            continue
        rows.append([
            name,
            *page.row(seen, ("seconds", "weights_gib")),
            *page.row(seen, ("weights_ratio",), 3),
            *page.row(seen, ("kv_gib",)),
            *page.row(seen, ("room_ratio",), 3),
            *page.row(seen, ("kv_tokens",), 0),
            *page.row(seen, ("sequences",)),
            *page.row(seen, ("sequence_ratio",), 3),
            *page.row(seen, ("overhead_gib", "beyond_share_gib")),
        ])  # fmt: skip
    drafted = [
        [name, *page.row(seen["after"], ("drafted", "accepted"))]
        for name, seen in found.items()
        if "drafted" in seen.get("after", {})
    ]
    longest = [
        [name, *page.row(seen["after"], ("long_prompt_tokens", "long_prompt_s"))]
        for name, seen in found.items()
        if seen.get("after", {}).get("long_prompt_tokens")
    ]
    return "\n\n".join([
        "## Fit",
        page.table(heads, rows),
        page.table(("case", "drafted tokens", "accepted"), drafted),
        page.table(("case", "tokens of the longest prompt", "seconds"), longest),
    ])  # fmt: skip
