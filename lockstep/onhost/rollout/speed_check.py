"""Check the hot model's speed and sense against the minimum of group data, for a deploy.

usage: minimum [--baseline | --accept]

Measures the hot model as `lockstep bench` does: one request at a time, one that is not counted and
three of 256 tokens on a technical prompt, streamed, output tokens of `usage` over wall time. Below
the model's minimum it ends with 1. "not_below" is a share of the accepted result, which is on
record on this host: the first one that was measured, until --accept replaces it, also with a slower
one (exit 0). --baseline only measures if that record is missing, so that a deploy can ask before it
changes anything; it leaves out what it cannot measure (exit 0).

If the minimum has "sense", the questions of the word `sense` come first, asked where clients ask.

exit codes: 0 fast enough, no minimum is set, or another member of the cluster measures it; 1 below
            the minimum, or nonsense; 2 wrong use, or no result: the measurement is suspect, or no
            model is hot although one has a minimum
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import clock, config, errors, event_lines, layout, program_command_lines
from lockstep.onhost.engine import openai_api, sense_check
from lockstep.onhost.records import accepted_speed
from lockstep.onhost.rollout import speed_prompt
from lockstep.onhost.system import gpu_sensors
from lockstep.onhost.systemd import units

# 256 tokens at one token per second, which nobody would wait for.
ANSWER_S = 256.0
# As many as article 004 had.
RUNS = 3
# Somebody may ask a model that has just become hot; then it is measured again.
TRIES, PAUSE_S = 3, 10.0
SETTLE_S = 2.0


class Suspect(Exception):
    """A broken or disturbed measurement; `str()` says how. No score, and no failure of a model."""


@dataclass(frozen=True)
class SpeedVerdict:
    """The verdict whether a measured speed is enough, and the sentence for the operator."""

    enough: bool
    words: str


def speed_verdict(
    rates: Sequence[float], least: float | None, share: float | None, accepted_rate: float | None
) -> SpeedVerdict:
    """Compare the mean of some runs with the minimum.

    Args:
        rates: tok/s of each run.
        least: Minimum of group data, tok/s.
        share: Share of the accepted result that is enough (0.9), or None.
        accepted_rate: Accepted result, tok/s, or None if none is on record.
    """
    mean = sum(rates) / len(rates)
    speed_text = f"{mean:.1f} tok/s ({min(rates):.1f} to {max(rates):.1f})"
    if least is not None and mean < least:
        return SpeedVerdict(False, f"{speed_text}, below the minimum of {least:.1f} tok/s")
    if share is not None and accepted_rate is not None and mean < share * accepted_rate:
        return SpeedVerdict(
            False, f"{speed_text}, below {share:.0%} of the accepted {accepted_rate:.1f} tok/s"
        )
    return SpeedVerdict(True, speed_text)


def measure_speed(
    model: config.Model, key: str | None
) -> tuple[list[float], gpu_sensors.SampleBand]:
    """Measure tok/s of each run, and power and clock of the GPU meanwhile.

    Raises:
        Suspect: The engine's own counters and the answers do not agree.
    """
    openai_api.ask_test_question(model, key, ANSWER_S)
    # The first request of a shape may have to wait for kernels to be compiled.
    _measure_rate(model, key)
    earlier_counters = _counters_at_rest(model, key, None)
    with gpu_sensors.sample_power_and_clock() as band:
        rates = [_measure_rate(model, key) for _ in range(RUNS)]
    later_counters = _counters_at_rest(model, key, earlier_counters)
    for noun, total, expected_count in (
        ("answers", "finished_requests", RUNS),
        ("tokens", "generated_tokens", RUNS * speed_prompt.TOKENS),
    ):
        growth = _counter_growth(earlier_counters, later_counters, total)
        if growth is not None and growth != expected_count:
            raise Suspect(
                f"{expected_count} {noun} came, but the engine counted {growth}: somebody else "
                "asks it, "
                "or something answers instead"
            )
    if max(rates) - min(rates) <= 1e-6 * max(rates):
        raise Suspect("all runs took exactly as long: no clock has measured that")
    return rates, band


def _counter_growth(
    earlier_counters: engines.Counters | None, later_counters: engines.Counters | None, total: str
) -> int | None:
    """Return the growth of a total; None if the engine does not publish it."""
    first, last = getattr(earlier_counters, total, None), getattr(later_counters, total, None)
    return None if first is None or last is None else last - first


def _counters_at_rest(
    model: config.Model, key: str | None, earlier_counters: engines.Counters | None
) -> engines.Counters | None:
    """Return an idle engine's counters; wait up to `SETTLE_S` until the runs are counted."""
    limit = clock.now() + SETTLE_S
    while True:
        counters = openai_api.counters(model, key)
        growth = _counter_growth(earlier_counters, counters, "finished_requests")
        is_idle = counters is None or not counters.outstanding
        if (is_idle and (growth is None or growth >= RUNS)) or clock.now() > limit:
            break
        clock.sleep(0.1)
    if counters is not None and counters.outstanding:
        raise Suspect(f"{counters.outstanding} request(s) of somebody else are in the engine")
    return counters


def _measure_rate(model: config.Model, key: str | None) -> float:
    mark = os.urandom(4).hex()
    # Streamed as `lockstep bench` has it, because an answer in one piece takes longer.
    stream = openai_api.streaming_fields(engines.ENGINES.get(model.engine))
    body = {**stream, "ignore_eos": True, "max_tokens": speed_prompt.TOKENS}
    began, wall = clock.now(), time.time()
    answer = openai_api.generate(model, key, f"[{mark}] {speed_prompt.PROMPT}", ANSWER_S, body)
    drift = (time.time() - wall) - (clock.now() - began)
    if answer.tokens != speed_prompt.TOKENS:
        raise Suspect(
            f"{answer.tokens} tokens instead of {speed_prompt.TOKENS}: truncated, or not counted"
        )
    if abs(drift) > 0.5:
        raise Suspect(f"the wall clock jumped by {drift:+.1f} s, or the machine slept")
    return answer.rate


def check_hot_model(host: config.HostConfig, paths: layout.Paths, mode: str) -> int:
    """Measure the hot model if it has a minimum. Exit code as in the docstring."""
    model = _hot_model(host)
    if model is None:
        return _end_with_nothing_hot(host, mode)
    if not (model.engine_url or model.url):
        event_lines.say(
            f"{model.name} answers on another member of its cluster, and is measured there"
        )
        return errors.EXIT_DONE
    minimum = model.minimum or config.Minimum()
    if minimum.sense and not mode and (code := _check_sense(model)):
        return code
    if model.kind != "chat":
        event_lines.say(
            f"{model.name} gives no tokens (kind {model.kind}), so no speed is measured"
        )
        return errors.EXIT_DONE
    # A minimum that this deploy brings is not here yet when it asks for a baseline.
    if not (model.minimum or mode):
        event_lines.say("no minimum is set for what is hot")
        return errors.EXIT_DONE
    if not (minimum.has_speed or mode):
        return errors.EXIT_DONE
    records = accepted_speed.load(paths)
    accepted_rate = records.get(model.name, {}).get("decode_tok_s")
    if mode == "baseline" and accepted_rate is not None:
        return errors.EXIT_DONE
    try:
        rates, band = _measure_speed_with_retries(model)
    except Suspect as why:
        event_lines.say(f"{model.name}: could not be measured: {why}")
        return errors.EXIT_DONE if mode == "baseline" else errors.EXIT_USAGE
    verdict = speed_verdict(rates, minimum.decode_tok_s, minimum.share, accepted_rate)
    event_lines.say(f"{model.name}: {verdict.words}")
    if mode == "accept" or (accepted_rate is None and (verdict.enough or mode == "baseline")):
        entry = {
            **_new_accepted_entry(model, rates),
            **band.as_json(),
            "max_clock_mhz": host.max_clock_mhz,
        }
        accepted_speed.save(paths, {**records, model.name: entry})
        event_lines.say(f"{model.name}: accepted as what later deploys are compared with")
    return errors.EXIT_DONE if verdict.enough or mode else errors.EXIT_FAILED


def _end_with_nothing_hot(host: config.HostConfig, mode: str) -> int:
    """Report that no model is hot; fail if a minimum had to be checked, but not for a baseline."""
    event_lines.say("no model is hot, so nothing is measured")
    is_required = mode == "accept" or any(model.minimum for model in host.models.values())
    return errors.EXIT_USAGE if is_required and mode != "baseline" else errors.EXIT_DONE


def _check_sense(model: config.Model) -> int:
    """Ask the sense questions where clients ask; return an exit code."""
    verdict = sense_check.judge_engine_sense(model, openai_api.api_key(model))
    event_lines.say(f"{model.name} {verdict.words}")
    if verdict.state == "sound":
        return errors.EXIT_DONE
    return errors.EXIT_FAILED if verdict.state == "nonsense" else errors.EXIT_USAGE


def _measure_speed_with_retries(
    model: config.Model,
) -> tuple[list[float], gpu_sensors.SampleBand]:
    engine_model = model.at_engine_address
    key = openai_api.api_key(engine_model)
    for tries_left in reversed(range(TRIES)):
        try:
            return measure_speed(engine_model, key)
        except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
            why = Suspect(str(answer))
        except Suspect as suspicion:
            why = suspicion
        if tries_left:
            event_lines.say(f"{model.name}: {why}; measuring again")
            clock.sleep(PAUSE_S)
    raise why


def _hot_model(host: config.HostConfig) -> config.Model | None:
    state = units.units_by_name(model.unit for model in host.models.values())
    return next(
        (candidate for candidate in host.models.values() if state[candidate.unit].state == "hot"),
        None,
    )


def _new_accepted_entry(model: config.Model, rates: Sequence[float]) -> dict[str, Any]:
    return {
        "decode_tok_s": round(sum(rates) / len(rates), 2),
        "runs": [round(rate, 2) for rate in rates],
        "recipe": model.recipe,
        "image": model.image,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv not in ([], ["--baseline"], ["--accept"]):
        return program_command_lines.print_usage(__doc__)
    mode = argv[0].lstrip("-") if argv else ""
    return check_hot_model(config.load_host(paths.models), paths, mode)
