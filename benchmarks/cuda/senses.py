"""The damage to trained weights that Lockstep's probes see, and their false alarms.

A small model is trained here, served, and probed as at a unit's start. Its weights are damaged in
the engine's memory, one damage after another (`damage`).
"""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cuda import REPOSITORY, page, questions
from benchmarks.cuda.server import MODEL, PORT, Environment, Server, serving
from lockstep.onhost.core.config import Model
from lockstep.onhost.engine import openai_api, sense_check

RUNS, AT_ONCE, ASKED = 1000, 16, 64
# Ways to probe the sound model: how many at once, and seconds after which none is begun. A probe
# takes a second or two when it is alone.
CLEAN = ((1, 120.0), (AT_ONCE, 480.0))
_CONTEXT, _ANSWER = 2048, 420
_GRAPHS: Mapping[str, Any] = {
    "mode": 0,
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
}
_BITS = {
    "sign": [15],
    "highest of the exponent": [14],
    "other bits of the exponent": list(range(7, 14)),
    "mantissa": list(range(7)),
}


def damages() -> dict[str, dict[str, Any]]:
    """Kind, size and seed → arguments of `damage.apply`; seeds come last, as time may run out."""
    specs_by_name: dict[str, dict[str, Any]] = {}
    for seed in range(3):
        for bits, numbers in _BITS.items():
            for count in (1, 10, 100, 1000):
                damage_spec = {"kind": "flip", "bits": numbers, "count": count, "seed": seed}
                specs_by_name[f"{count} flipped: {bits} | {seed}"] = damage_spec
        if seed:
            continue
        for levels in (8, 5, 4, 3, 2):
            for group in (32, 1 << 20):
                scale = "32 values" if group == 32 else "a row"
                damage_spec = {"kind": "round", "levels": levels, "group": group}
                specs_by_name[f"rounded to {levels} bits, a scale for {scale} | 0"] = damage_spec
        for layer in range(4):
            for factor in (1.05, 1.5, 0.5):
                specs_by_name[f"a layer's matrices times {factor} | {layer}"] = {
                    "kind": "scale",
                    "layer": layer,
                    "factor": factor,
                }
            for part in ("self_attn.o_proj", "mlp.down_proj"):
                damage_spec = {"kind": "zero", "layer": layer, "part": part}
                specs_by_name[f"{part} of a layer zero | {layer}"] = damage_spec
        for number in range(3):
            damage_spec = {"kind": "swap", "layers": [number, number + 1]}
            specs_by_name[f"two layers swapped | {number}"] = damage_spec
            damage_spec = {"kind": "value", "value": "nan", "count": 1, "seed": number}
            specs_by_name[f"one weight is no number | {number}"] = damage_spec
    return specs_by_name


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Train and serve a model; probe it while it is sound, then after each damage."""
    checkpoint = folders / "trained"
    checkpoint.mkdir(parents=True, exist_ok=True)
    search_path = f"{environment.environ().get('PYTHONPATH', '')}:{REPOSITORY}"
    variables = {"PYTHONPATH": search_path, "VLLM_SERVER_DEV_MODE": "1"}
    yield "trained", _training_report(environment, checkpoint, variables)
    with serving(environment, "sense", _words(checkpoint), variables) as (server, ready):
        yield "ready", ready
        if "failed" in ready:
            return
        model = replace(server.model, tools=True)
        _damage_model(server, {})
        first, sound_answers = sense_check.judge_engine_sense(model, None), _answers(model)
        yield (
            "sound",
            {"words": first.words, "seconds": first.seconds, "right": _right(sound_answers)},
        )
        if first.state != "sound":
            return
        for name, damage_spec in damages().items():
            yield (
                name,
                {
                    **_damage_model(server, damage_spec),
                    **_look_at_model(model, sound_answers),
                },
            )
        _damage_model(server, {})
        yield "mended", _look_at_model(model, sound_answers)
        yield from _clean(model)


def _training_report(
    environment: Environment, checkpoint: Path, variables: Mapping[str, str]
) -> Mapping[str, Any]:
    """The report of the training; weights that an earlier run trained are reused."""
    target_path = checkpoint / "trained.json"
    if not target_path.exists():
        program = [environment.python, "-m", "benchmarks.cuda.trained_model", str(checkpoint)]
        with (environment.folder / "trained.log").open("w") as log:
            subprocess.run(
                [*program, str(REPOSITORY / "docs")],
                check=True,
                stdout=log,
                env=environment.environ(variables),
            )
    report: dict[str, Any] = json.loads(target_path.read_text())
    return report


def _words(checkpoint: Path) -> tuple[str, ...]:
    # With its prefix cache, an engine would reuse results of the sound weights.
    return (
        *("vllm", "serve", str(checkpoint), "--host", "127.0.0.1", "--port", str(PORT)),
        *("--served-model-name", MODEL, "--max-model-len", str(_CONTEXT), "--max-num-seqs", "64"),
        *("--gpu-memory-utilization", "0.06", "--no-enable-prefix-caching"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--worker-extension-cls", "benchmarks.cuda.damage.Damage"),
        *("--compilation-config", json.dumps(_GRAPHS)),
    )


def _damage_model(server: Server, damage_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Mend the weights in the engine's memory, then damage them by the specification."""
    body = json.dumps({"method": "lockstep_damage", "args": [damage_spec]}).encode()
    request = urllib.request.Request(
        f"{server.url}/collective_rpc", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        result: dict[str, Any] = json.load(answer)["results"][0]
    return result


def _clean(model: Model) -> Iterator[tuple[str, Any]]:
    """Probe the sound model: one probe after the other, as a host does, and many at once."""
    for at_once, limit_s in CLEAN:
        began, runs, alarms = time.monotonic(), 0, Counter[str]()
        with ThreadPoolExecutor(at_once) as pool:
            while runs < RUNS and time.monotonic() - began < limit_s:
                some = min(at_once * 4, RUNS - runs)
                look = partial(sense_check.judge_engine_sense, model, None)
                verdicts = [
                    attempt.result() for attempt in [pool.submit(look) for _ in range(some)]
                ]
                alarms.update(attempt.words for attempt in verdicts if attempt.state != "sound")
                runs += some
        yield (
            f"clean, {at_once} at once",
            {
                "runs": runs,
                "alarms": alarms.total(),
                "seconds": time.monotonic() - began,
                "words": dict(alarms.most_common(10)),
            },
        )


def _look_at_model(model: Model, sound_answers: list[str]) -> dict[str, Any]:
    """The findings of test question and probes, and the model's real loss."""
    try:
        test_answer = openai_api.ask_test_question(model, None, 60.0)
    except (openai_api.NotReady, openai_api.RequestRefusal) as error:
        test_answer = f"failed: {error}"
    by_answers = sense_check.judge_engine_sense(model, None)
    answers = _answers(model)
    return {
        "test question": test_answer[:120],
        "state": by_answers.state,
        "words": by_answers.words[:300],
        "probes": [look.probe for look in by_answers.looks if look.state == "nonsense"],
        "right": _right(answers),
        "same": sum(a == b for a, b in zip(answers, sound_answers, strict=True)),
    }


def _answers(model: Model) -> list[str]:
    """Texts that answer the `ASKED` questions, which no probe asks; "" for a missing answer."""

    def ask(question: questions.Question) -> str:
        try:
            raw = openai_api.raw_chat_answer(
                model, None, question.prompt, 60.0, {"max_tokens": _ANSWER}
            )
            return str(json.loads(raw)["choices"][0]["message"]["content"])
        except (openai_api.NotReady, openai_api.RequestRefusal):
            return ""

    with ThreadPoolExecutor(ASKED) as pool:
        return list(pool.map(ask, _unprobed_questions()))


def _unprobed_questions() -> list[questions.Question]:
    dice = random.Random(7)
    return [questions.echo(dice) for _ in range(ASKED)]


def _right(answers: list[str]) -> int:
    pairs = zip(answers, _unprobed_questions(), strict=True)
    return sum(answer.strip() == question.answer for answer, question in pairs)


def text(results: Mapping[str, Any]) -> str:
    """The page's part: one row for each kind of damage."""
    heads = ["## Sense"]
    for name, figures in results.items():
        if " | " not in name and name != "ready":
            heads.append(f"{name}: {json.dumps(figures)}")
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for name, figures in results.items():
        if " | " in name:
            kinds.setdefault(name.split(" | ")[0], []).append(figures)
    names = (
        "damage",
        "times",
        "test question",
        "answers",
        "answers, of those that did harm",
    )
    rows = [(kind, *_row(every, results["sound"]["right"])) for kind, every in kinds.items()]
    return "\n\n".join([*heads, page.table((*names, f"right of {ASKED}"), rows)])


def _row(every: list[Mapping[str, Any]], sound: int) -> tuple[object, ...]:
    """Count the damages that each check saw; harm is fewer right answers than the sound model's."""
    by_answers = [figures["state"] == "nonsense" for figures in every]
    right = [figures["right"] for figures in every]
    harmful_damages = [number for number, right_count in enumerate(right) if right_count < sound]
    return (
        len(every),
        sum(figures["test question"].startswith("failed") for figures in every),
        sum(by_answers),
        f"{sum(by_answers[n] for n in harmful_damages)} of {len(harmful_damages)}",
        f"{min(right)} to {max(right)}" if min(right) < max(right) else str(min(right)),
    )
