"""Which damage to trained weights Lockstep's probes see, and how often they accuse sound ones.

A small model is trained here, served, and asked as a unit's start asks. Its weights are damaged in
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
from lockstep.onhost.core.config import Target
from lockstep.onhost.engine import openai_api, sense

RUNS, AT_ONCE, ASKED = 1000, 16, 64
# Of each way to look at the sound model: by what, how many at once, how many, and the seconds after
# which no more are begun. A look by answers takes a second or two when it is alone.
CLEAN = (
    ("record", 1, RUNS, 480.0),
    ("record", AT_ONCE, 320, 120.0),
    ("answers", 1, RUNS, 120.0),
    ("answers", AT_ONCE, RUNS, 480.0),
)
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
    """Kind, size and seed → what `damage.apply` does; the seeds come last, so that time may end."""
    found: dict[str, dict[str, Any]] = {}
    for seed in range(3):
        for bits, numbers in _BITS.items():
            for count in (1, 10, 100, 1000):
                what = {"kind": "flip", "bits": numbers, "count": count, "seed": seed}
                found[f"{count} flipped: {bits} | {seed}"] = what
        if seed:
            continue
        for levels in (8, 5, 4, 3, 2):
            for group in (32, 1 << 20):
                scale = "32 values" if group == 32 else "a row"
                what = {"kind": "round", "levels": levels, "group": group}
                found[f"rounded to {levels} bits, a scale for {scale} | 0"] = what
        for layer in range(4):
            for factor in (1.05, 1.5, 0.5):
                found[f"a layer's matrices times {factor} | {layer}"] = {
                    "kind": "scale",
                    "layer": layer,
                    "factor": factor,
                }
            for part in ("self_attn.o_proj", "mlp.down_proj"):
                what = {"kind": "zero", "layer": layer, "part": part}
                found[f"{part} of a layer zero | {layer}"] = what
        for number in range(3):
            what = {"kind": "swap", "layers": [number, number + 1]}
            found[f"two layers swapped | {number}"] = what
            what = {"kind": "value", "value": "nan", "count": 1, "seed": number}
            found[f"one weight is no number | {number}"] = what
    return found


def measure(environment: Environment, folders: Path) -> Iterator[tuple[str, Any]]:
    """Train, serve, look at the sound model, then at it after each damage."""
    checkpoint = folders / "trained"
    checkpoint.mkdir(parents=True, exist_ok=True)
    found = f"{environment.environ().get('PYTHONPATH', '')}:{REPOSITORY}"
    variables = {"PYTHONPATH": found, "VLLM_SERVER_DEV_MODE": "1"}
    yield "trained", _trained(environment, checkpoint, variables)
    with serving(environment, "sense", _words(checkpoint), variables) as (server, ready):
        yield "ready", ready
        if "failed" in ready:
            return
        target = replace(server.target, sense="answers", tools=True)
        record = sense.look(replace(target, sense="record"), None).answers
        _damaged(server, {})
        first, known = sense.look(target, None), _answers(target)
        yield "sound", {"words": first.words, "seconds": first.seconds, "right": _right(known)}
        if first.state != "sound":
            return
        for name, what in damages().items():
            yield name, {**_damaged(server, what), **_looked(target, record, known)}
        _damaged(server, {})
        yield "mended", _looked(target, record, known)
        yield from _clean(target, record)


def _trained(
    environment: Environment, checkpoint: Path, variables: Mapping[str, str]
) -> Mapping[str, Any]:
    """What the training said; weights that an earlier run trained are taken as they are."""
    said = checkpoint / "trained.json"
    if not said.exists():
        program = [environment.python, "-m", "benchmarks.cuda.trained", str(checkpoint)]
        with (environment.folder / "trained.log").open("w") as log:
            subprocess.run(
                [*program, str(REPOSITORY / "docs")],
                check=True,
                stdout=log,
                env=environment.environ(variables),
            )
    found: dict[str, Any] = json.loads(said.read_text())
    return found


def _words(checkpoint: Path) -> tuple[str, ...]:
    # With its prefix cache, an engine would go on with what sound weights computed.
    return (
        *("vllm", "serve", str(checkpoint), "--host", "127.0.0.1", "--port", str(PORT)),
        *("--served-model-name", MODEL, "--max-model-len", str(_CONTEXT), "--max-num-seqs", "64"),
        *("--gpu-memory-utilization", "0.06", "--no-enable-prefix-caching"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--worker-extension-cls", "benchmarks.cuda.damage.Damage"),
        *("--compilation-config", json.dumps(_GRAPHS)),
    )


def _damaged(server: Server, what: Mapping[str, Any]) -> dict[str, Any]:
    """Mend the weights in the engine's memory, and damage them so."""
    body = json.dumps({"method": "lockstep_damage", "args": [what]}).encode()
    request = urllib.request.Request(
        f"{server.url}/collective_rpc", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)["results"][0]
    return found


def _clean(target: Target, record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Looks at the sound model: one after the other, as a host asks, and many at once."""
    for by, at_once, most, limit_s in CLEAN:
        seen, known = replace(target, sense=by), record if by == "record" else None
        began, runs, alarms = time.monotonic(), 0, Counter[str]()
        with ThreadPoolExecutor(at_once) as pool:
            while runs < most and time.monotonic() - began < limit_s:
                some = min(at_once * 4, most - runs)
                look = partial(sense.look, seen, None, known)
                verdicts = [each.result() for each in [pool.submit(look) for _ in range(some)]]
                alarms.update(each.words for each in verdicts if each.state != "sound")
                runs += some
        yield (
            f"clean, by {by}, {at_once} at once",
            {
                "runs": runs,
                "alarms": alarms.total(),
                "seconds": time.monotonic() - began,
                "words": dict(alarms.most_common(10)),
            },
        )


def _looked(target: Target, record: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """What the canary, the probes and the record say, and how much the model really lost."""
    try:
        canary = openai_api.canary(target, None, 60.0)
    except (openai_api.NotReady, openai_api.Refused) as said:
        canary = f"failed: {said}"
    by_answers = sense.look(target, None)
    by_record = sense.look(replace(target, sense="record"), None, record)
    answers = _answers(target)
    return {
        "canary": canary[:120],
        "state": by_answers.state,
        "words": by_answers.words[:300],
        "probes": [look.probe for look in by_answers.looks if look.state == "nonsense"],
        "record": by_record.state,
        "record_words": by_record.words[:200],
        "right": _right(answers),
        "same": sum(a == b for a, b in zip(answers, known, strict=True)),
    }


def _answers(target: Target) -> list[str]:
    """Texts to `ASKED` questions that no probe asks; "" where none came."""

    def asked(question: questions.Question) -> str:
        try:
            raw = openai_api.chat(target, None, question.prompt, 60.0, {"max_tokens": _ANSWER})
            return str(json.loads(raw)["choices"][0]["message"]["content"])
        except (openai_api.NotReady, openai_api.Refused):
            return ""

    with ThreadPoolExecutor(ASKED) as pool:
        return list(pool.map(asked, _others()))


def _others() -> list[questions.Question]:
    dice = random.Random(7)
    return [questions.echo(dice) for _ in range(ASKED)]


def _right(answers: list[str]) -> int:
    pairs = zip(answers, _others(), strict=True)
    return sum(answer.strip() == other.answer for answer, other in pairs)


def text(found: Mapping[str, Any]) -> str:
    """The page's part: one row for each kind of damage."""
    heads = ["## Sense"]
    for name, one in found.items():
        if " | " not in name and name != "ready":
            heads.append(f"{name}: {json.dumps(one)}")
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for name, one in found.items():
        if " | " in name:
            kinds.setdefault(name.split(" | ")[0], []).append(one)
    names = ("damage", "times", "canary", "answers", "record", "answers, of those that did harm")
    rows = [(kind, *_row(every, found["sound"]["right"])) for kind, every in kinds.items()]
    return "\n\n".join([*heads, page.table((*names, f"right of {ASKED}"), rows)])


def _row(every: list[Mapping[str, Any]], sound: int) -> tuple[object, ...]:
    """How many were seen by whom; harm is fewer right answers than the sound model gave."""
    by_answers = [one["state"] == "nonsense" for one in every]
    by_record = [one["record"] == "nonsense" for one in every]
    right = [one["right"] for one in every]
    harmed = [number for number, lost in enumerate(right) if lost < sound]
    return (
        len(every),
        sum(one["canary"].startswith("failed") for one in every),
        sum(by_answers),
        sum(by_record),
        f"{sum(by_answers[n] for n in harmed)} of {len(harmed)}",
        f"{min(right)} to {max(right)}" if min(right) < max(right) else str(min(right)),
    )
