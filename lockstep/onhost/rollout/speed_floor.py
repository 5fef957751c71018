"""Check the hot model's speed and sense against the floor of group data, for a deploy.

usage: floor [--baseline | --accept]

Measures what is hot as `lockstep bench` does: one request at a time, one that is not counted and
three of 256 tokens on a technical prompt, streamed, output tokens of `usage` over wall time. Below
the target's floor it ends with 1. "not_below" is a share of the accepted result, which is on record
on this host: the first one that was measured, until --accept replaces it, with a slower one, too
(exit 0). --baseline only measures where that record is missing, so that a deploy can ask before it
changes anything; what it cannot measure it leaves out (exit 0).

Where the floor has "sense", the questions of the word `sense` come first, asked where clients ask.

exit codes: 0 fast enough, no floor is set, or another member of the cluster measures it; 1 below
            the floor, or nonsense; 2 wrong use, or it could not be told: the ruler is suspect, or
            no model is hot where one has a floor
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import clock, config, errors, layout, output, program
from lockstep.onhost.engine import openai_api, sense, sense_record
from lockstep.onhost.records import accepted
from lockstep.onhost.rollout import technical
from lockstep.onhost.system import gpu
from lockstep.onhost.systemd import units

# 256 tokens at one token per second, which nobody would wait for.
ANSWER_S = 256.0
# As many as article 004 had.
RUNS = 3
# Somebody may ask a model that has just become hot; then it is measured again.
TRIES, PAUSE_S = 3, 10.0
SETTLE_S = 2.0


class Suspect(Exception):
    """The ruler is broken or disturbed; `str()` says how. No score, and no failure of a model."""


@dataclass(frozen=True)
class Verdict:
    """Whether a measured speed is enough, and the sentence for the operator."""

    enough: bool
    words: str


def decide(
    rates: Sequence[float], least: float | None, share: float | None, accepted: float | None
) -> Verdict:
    """Compare the mean of some runs with the floor.

    Args:
        rates: tok/s of each run.
        least: Floor of group data, tok/s.
        share: Share of the accepted result that is enough (0.9), or None.
        accepted: Accepted result, tok/s, or None where none is on record.
    """
    mean = sum(rates) / len(rates)
    found = f"{mean:.1f} tok/s ({min(rates):.1f} to {max(rates):.1f})"
    if least is not None and mean < least:
        return Verdict(False, f"{found}, below the floor of {least:.1f} tok/s")
    if share is not None and accepted is not None and mean < share * accepted:
        return Verdict(False, f"{found}, below {share:.0%} of the accepted {accepted:.1f} tok/s")
    return Verdict(True, found)


def measure(target: config.Target, key: str | None) -> tuple[list[float], gpu.Band]:
    """tok/s of each run, and power and clock of the GPU meanwhile.

    Suspect where the engine's own counters, or the answers, do not agree.
    """
    openai_api.canary(target, key, ANSWER_S)
    # The first request of a shape may have to wait for kernels to be compiled.
    _rate(target, key)
    before = _counted(target, key, None)
    with gpu.sampled() as band:
        rates = [_rate(target, key) for _ in range(RUNS)]
    after = _counted(target, key, before)
    for what, total, sent in (
        ("answers", "finished", RUNS),
        ("tokens", "generated", RUNS * technical.TOKENS),
    ):
        moved = _moved(before, after, total)
        if moved is not None and moved != sent:
            raise Suspect(
                f"{sent} {what} came, but the engine counted {moved}: somebody else asks it, "
                "or something answers instead"
            )
    if max(rates) - min(rates) <= 1e-6 * max(rates):
        raise Suspect("all runs took exactly as long: no clock has measured that")
    return rates, band


def _moved(
    before: engines.Counters | None, after: engines.Counters | None, total: str
) -> int | None:
    """By how much a total grew; None where the engine does not publish it."""
    first, last = getattr(before, total, None), getattr(after, total, None)
    return None if first is None or last is None else last - first


def _counted(
    target: config.Target, key: str | None, before: engines.Counters | None
) -> engines.Counters | None:
    """The engine's counters at rest; after the runs once they were counted, or a while later."""
    limit = clock.now() + SETTLE_S
    while True:
        seen = openai_api.counters(target, key)
        moved = _moved(before, seen, "finished")
        rested = seen is None or not seen.outstanding
        if (rested and (moved is None or moved >= RUNS)) or clock.now() > limit:
            break
        clock.sleep(0.1)
    if seen is not None and seen.outstanding:
        raise Suspect(f"{seen.outstanding} request(s) of somebody else are in the engine")
    return seen


def _rate(target: config.Target, key: str | None) -> float:
    mark = os.urandom(4).hex()
    # Streamed as `lockstep bench` has it, because an answer in one piece takes longer.
    stream = openai_api.streamed(engines.ENGINES.get(target.engine))
    body = {**stream, "ignore_eos": True, "max_tokens": technical.TOKENS}
    began, wall = clock.now(), time.time()
    made = openai_api.generate(target, key, f"[{mark}] {technical.PROMPT}", ANSWER_S, body)
    drift = (time.time() - wall) - (clock.now() - began)
    if made.tokens != technical.TOKENS:
        raise Suspect(
            f"{made.tokens} tokens instead of {technical.TOKENS}: truncated, or not counted"
        )
    if abs(drift) > 0.5:
        raise Suspect(f"the wall clock jumped by {drift:+.1f} s, or the machine slept")
    return made.rate


def gate(host: config.Host, paths: layout.Paths, mode: str) -> int:
    """Measure the hot target if it has a floor. Exit code as in the docstring."""
    target = _hot(host)
    if target is None:
        return _nothing_hot(host, mode)
    if not (target.engine_url or target.url):
        output.say(f"{target.name} answers on another member of its cluster, and is measured there")
        return errors.EXIT_DONE
    if target.floor_sense and not mode and (code := _sense(target, paths)):
        return code
    if target.kind != "chat":
        output.say(f"{target.name} gives no tokens (kind {target.kind}), so no speed is measured")
        return errors.EXIT_DONE
    # A floor that this deploy brings is not here yet when it asks for a baseline.
    if not (_floored(target) or mode):
        output.say("no floor is set for what is hot")
        return errors.EXIT_DONE
    if not (_speed_floored(target) or mode):
        return errors.EXIT_DONE
    records = accepted.load(paths)
    known = records.get(target.name, {}).get("decode_tok_s")
    if mode == "baseline" and known is not None:
        return errors.EXIT_DONE
    try:
        rates, band = _measured(target)
    except Suspect as why:
        output.say(f"{target.name}: could not be measured: {why}")
        return errors.EXIT_DONE if mode == "baseline" else errors.EXIT_USAGE
    verdict = decide(rates, target.floor_tok_s, target.floor_share, known)
    output.say(f"{target.name}: {verdict.words}")
    if mode == "accept" or (known is None and (verdict.enough or mode == "baseline")):
        entry = {**_entry(target, rates), **band.as_json(), "max_clock_mhz": host.max_clock_mhz}
        accepted.save(paths, {**records, target.name: entry})
        output.say(f"{target.name}: accepted as what later deploys are compared with")
    return errors.EXIT_DONE if verdict.enough or mode else errors.EXIT_FAILED


def _nothing_hot(host: config.Host, mode: str) -> int:
    """A host that serves nothing keeps no floor; a baseline is only looked for."""
    output.say("no model is hot, so nothing is measured")
    asked = mode == "accept" or any(map(_floored, host.targets.values()))
    return errors.EXIT_USAGE if asked and mode != "baseline" else errors.EXIT_DONE


def _floored(target: config.Target) -> bool:
    return _speed_floored(target) or target.floor_sense


def _speed_floored(target: config.Target) -> bool:
    return (target.floor_tok_s, target.floor_share) != (None, None)


def _sense(target: config.Target, paths: layout.Paths) -> int:
    """Whether it makes sense where clients ask: an exit code."""
    asked = replace(target, sense="answers") if target.sense == "off" else target
    verdict = sense.look(asked, openai_api.api_key(target), sense_record.accepted(paths, target))
    output.say(f"{target.name} {verdict.words}")
    if verdict.state == "sound":
        return errors.EXIT_DONE
    return errors.EXIT_FAILED if verdict.state == "nonsense" else errors.EXIT_USAGE


def _measured(target: config.Target) -> tuple[list[float], gpu.Band]:
    asked = target.itself
    key = openai_api.api_key(asked)
    for left in reversed(range(TRIES)):
        try:
            return measure(asked, key)
        except (openai_api.NotReady, openai_api.Refused) as answer:
            why = Suspect(str(answer))
        except Suspect as suspicion:
            why = suspicion
        if left:
            output.say(f"{target.name}: {why}; measuring again")
            clock.sleep(PAUSE_S)
    raise why


def _hot(host: config.Host) -> config.Target | None:
    state = units.show(target.unit for target in host.targets.values())
    return next((one for one in host.targets.values() if state[one.unit].state == "hot"), None)


def _entry(target: config.Target, rates: Sequence[float]) -> dict[str, Any]:
    return {
        "decode_tok_s": round(sum(rates) / len(rates), 2),
        "runs": [round(rate, 2) for rate in rates],
        "recipe": target.recipe,
        "image": target.image,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv not in ([], ["--baseline"], ["--accept"]):
        return program.usage(__doc__)
    mode = argv[0].lstrip("-") if argv else ""
    return gate(config.load_host(paths.targets), paths, mode)
