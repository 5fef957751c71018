"""Suite `sense`: the questions with which a start detects nonsense, each with its answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.bench.prompts import mark, user
from lockstep.bench.run import Bench, Outcome
from lockstep.bench.sample import Ask, BenchSample
from lockstep.onhost.engine import sense_questions
from lockstep.onhost.engine.sense_check import (
    MOST_TOKENS,
    THINKING_OFF,
    SenseCheck,
    SenseVerdict,
    State,
)

# Engines may refuse these: an option of the chat template, and log-probabilities.
_WAYS: Sequence[dict[str, Any]] = (
    {**THINKING_OFF, "logprobs": True},
    {"logprobs": True},
    THINKING_OFF,
    {},
)
_ALONE = (sense_questions.ECHO, sense_questions.COUNT, sense_questions.TOOL)
_TOGETHER = (sense_questions.ECHO, sense_questions.COUNT)


def sense(bench: Bench) -> Outcome:
    """Ask every question; report the right answers and the content of the others."""
    samples: list[BenchSample] = []
    way: dict[str, Any] = {}
    for way in _WAYS:
        samples.append(bench.ask(_ask(bench, sense_questions.ECHO, way)))
        if not samples[-1].refusal:
            break
    if samples[-1].refusal:
        return Outcome(tuple(samples), {}, refusal=samples[-1].refusal)
    tried_count = len(samples) - 1
    samples += [bench.ask(_ask(bench, probe, way)) for probe in _ALONE[1:]]
    with ThreadPoolExecutor(len(_TOGETHER)) as pool:
        samples += pool.map(lambda probe: bench.ask(_ask(bench, probe, way)), _TOGETHER)
    names = [*(probe.name for probe in _ALONE), *(f"{p.name} of two at once" for p in _TOGETHER)]
    asked_probes = zip(names, (*_ALONE, *_TOGETHER), samples[tried_count:], strict=True)
    looks = [
        SenseCheck(name, *probe_verdict(probe, sample)) for name, probe, sample in asked_probes
    ]
    why = {look.probe: look.words for look in looks if look.words}
    summary = {
        # The same rule as at a start: nonsense if any answer is, sound if one is and none is wrong.
        "sense": SenseVerdict(tuple(looks)).state,
        "right": sum(look.state == "sound" for look in looks),
        "questions": len(looks),
        "why_not": why,
        "log_probabilities": "finite" if samples[tried_count].logprobs else "not given",
    }
    note = "a tool is asked for here even where the recipe has no parser of tool calls"
    return Outcome(
        tuple(samples), summary, notes=(note,) if sense_questions.TOOL.name in why else ()
    )


def probe_verdict(probe: sense_questions.SenseQuestion, sample: BenchSample) -> tuple[State, str]:
    """Return a sample's verdict on the model, and why it is no right answer, or ""."""
    if not sample.good:
        return "untold", sample.refusal or sample.fault
    answer = sense_questions.answer_with_thoughts_apart(
        text=sample.text,
        thoughts=sample.thoughts,
        calls=sample.tool_calls,
        tokens=sample.tokens,
        finish=sample.finish,
        leading=sample.logprobs,
    )
    if wrong := probe.fault_of_answer(answer):
        # Without a parser the call is text, and the suite cannot know whether the engine has a
        # parser.
        is_parsed = probe is not sense_questions.TOOL or answer.calls
        return ("nonsense" if is_parsed else "untold"), wrong
    why = probe.reason_undecided(answer)
    return ("untold" if why else "sound"), why


def _ask(bench: Bench, probe: sense_questions.SenseQuestion, way: dict[str, Any]) -> Ask:
    tokens = min(MOST_TOKENS, (bench.context or MOST_TOKENS * 2) // 2)
    extra = {**way, **probe.more}
    return Ask(probe.name, user(f"[{mark()}] {probe.prompt}"), tokens, stream=False, extra=extra)
