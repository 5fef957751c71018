"""Suite `thinking`: the default state of thinking, and its cost when on.

Article 001: 100 to 200 s per coding answer.
"""

from __future__ import annotations

from typing import Any

from lockstep.bench.prompts import user
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, BenchSample

_MOST_TOKENS = 4096
_PUZZLE = (
    "A shelf has 3 boxes. The red one is left of the blue one, the green one is not at an end. "
    "Which colour is in the middle? Answer with one word."
)
_WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "on": {"chat_template_kwargs": {"enable_thinking": True}},
    "off": {"chat_template_kwargs": {"enable_thinking": False}},
}


def thinking(bench: Bench) -> Outcome:
    """Ask the same small puzzle with thinking as served, on, and off."""
    samples = {
        way: bench.ask(Ask(f"thinking {way}", user(_PUZZLE), _MOST_TOKENS, extra=extra))
        for way, extra in _WAYS.items()
    }
    summary = {
        "off_by_default": not thoughts(samples["default"]),
        "by_way": {way: _figures(sample) for way, sample in samples.items()},
    }
    note = "" if thoughts(samples["on"]) else "asked to think, it does not: no thinking here"
    return Outcome(tuple(samples.values()), summary, notes=(note,) if note else ())


def thoughts(sample: BenchSample) -> str:
    """Return the thoughts of an answer, even if no parser took them out of its text."""
    reasoning, mark, _ = sample.text.partition("</think>")
    return sample.thoughts or (reasoning if mark else "")


def _figures(sample: BenchSample) -> dict[str, Any]:
    return {
        "seconds": round(sample.seconds, 2),
        "tokens": sample.tokens,
        "thought_characters": len(thoughts(sample)),
        "finished": sample.finish == "stop",
    }
