"""Broken rulers, planted one by one: each is suspect, none is a score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import local_server
import pytest
from broken_engine import MODEL, Engine, serving
from click.testing import CliRunner, Result

from lockstep.bench import ruler
from lockstep.bench.client import Client, Clock
from lockstep.bench.look import HostLook
from lockstep.bench.results import SuiteResult, load
from lockstep.bench.ruler import ExpectedFigures
from lockstep.bench.run import Bench, measure
from lockstep.bench.suites.suites import SUITES
from lockstep.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no hiccup of this busy machine; tests without time judge the agreement of repeats."""
    monkeypatch.setattr(ruler, "HICCUP_S", 60.0)


def run(url: str, folder: Path, *words: str) -> Result:
    argv = ["bench", url, "--suite", "decode", "--quick", "--repeat", "3"]
    argv += ["-o", str(folder / "result.json"), *words]
    return CliRunner().invoke(main, argv)


def measure_engine(engine: Engine, folder: Path, *words: str) -> tuple[Result, SuiteResult]:
    with serving(engine) as url:
        result = run(url, folder, *words)
    assert not isinstance(result.exception, Exception) or result.exit_code, result.output
    suite = load(folder / "result.json").suite("decode")
    assert suite is not None
    return result, suite


def test_a_sound_engine_is_measured(tmp_path: Path) -> None:
    result, suite = measure_engine(Engine(), tmp_path)
    assert (result.exit_code, suite.verdict) == (0, "measured"), result.output
    checks = {check.name: check.verdict for check in suite.checks}
    assert [name for name, verdict in checks.items() if verdict == "unread"] == [
        "lock",
        "quiet",
        "cool",
        "compiled",
    ]
    figures = suite.summary["by_shape"]["technical"]
    rate = figures["decode_tok_s"]
    # 256 tokens in 32 steps of 5 ms: 1600 tok/s at best, and any machine is slower.
    assert 0 < rate["low"] <= rate["mean"] <= rate["high"] <= 1600
    assert len(rate["samples"]) == 3
    assert 0.005 <= figures["first_token_s"]["low"] < suite.samples[0].seconds


@pytest.mark.parametrize(
    ("engine", "has_first_token"),
    [
        (Engine(), True),
        (Engine(holds=True), True),
        (Engine(holds=True, old=True), False),
        (Engine(kind="sglang"), True),
        (Engine(kind="sglang", holds=True), False),
        (Engine(kind="llamacpp", no_metrics=True), True),
        (Engine(kind="llamacpp", no_metrics=True, holds=True), True),
    ],
)
def test_a_first_token_that_a_parser_holds_back_is_told_or_said_to_be_unknown(
    tmp_path: Path, engine: Engine, has_first_token: bool
) -> None:
    result, suite = measure_engine(engine, tmp_path)
    assert (result.exit_code, suite.verdict) == (0, "measured"), result.output
    figures = suite.summary["by_shape"]["technical"]
    assert figures["decode_tok_s"]
    if has_first_token:
        assert figures["first_token_s"]
        assert all(sample.first_s < sample.seconds for sample in suite.samples)
        # One of 32 steps.
        assert suite.samples[0].first_tokens == 8
        assert suite.notes == ()
    else:
        assert (figures["first_token_s"], figures["after_first_tok_s"]) == (None, None)
        assert "cannot be told: up to 256 tokens came at once" in " ".join(result.output.split())


BROKEN = {
    "a proxy swallows requests": (Engine(swallow=True), "answers", "timed out"),
    "the answer stalls": (Engine(slow_s=9), "answers", "timed out"),
    "no text comes": (Engine(empty=True), "answers", "empty text"),
    "a cache answers": (Engine(is_cached=True), "requests", "the engine counted 0"),
    "another model is behind the port": (Engine(other_model=True), "model", "another/model"),
    "another model answers": (Engine(answers_as="x"), "answers", "another model answered: 'x'"),
    "the stream is cut": (Engine(cut=True), "answers", "truncated"),
    "the stream has no end": (Engine(no_done=True), "answers", "without [DONE]"),
    "the answer is too short": (Engine(short=40), "answers", "216 of 256 tokens"),
    "usage is missing": (Engine(no_usage=True), "answers", "no usage"),
    "usage lies": (Engine(lie=44), "tokens", "the engine counted 768"),
    "everything comes at once": (Engine(burst=True), "bandwidth", ""),
    "somebody else asks too": (Engine(crowd=1), "requests", "the engine counted 6"),
    "the engine fails": (Engine(status=500), "answers", "HTTP 500"),
    "the engine is replaced": (Engine(restarts=4), "model", "changed during the suite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_ruler_is_suspect_and_gives_no_score(tmp_path: Path, name: str) -> None:
    engine, check, message = BROKEN[name]
    limit = "1" if message == "timed out" else "20"
    result, suite = measure_engine(replace(engine), tmp_path, "--model", MODEL, "--timeout", limit)
    assert result.exit_code == 2, result.output
    assert (suite.verdict, suite.summary) == ("suspect", {})
    details = {item.name: item.detail for item in suite.checks if item.verdict == "suspect"}
    assert message in details[check]
    assert f"suspect {check}" in result.output


def test_an_engine_that_is_not_there_is_no_score(tmp_path: Path) -> None:
    result = run("http://127.0.0.1:9", tmp_path)
    assert result.exit_code == 2
    assert "no engine answers there" in result.output
    assert not (tmp_path / "result.json").exists()


def test_an_engine_without_counters_is_measured_and_that_is_said(tmp_path: Path) -> None:
    result, suite = measure_engine(Engine(no_metrics=True), tmp_path)
    assert (result.exit_code, suite.verdict) == (0, "measured")
    assert "not readable here: lock, requests, tokens, alone" in result.output


def test_a_check_that_is_waived_stays_visible(tmp_path: Path) -> None:
    result, suite = measure_engine(Engine(crowd=1), tmp_path, "--waive", "requests")
    assert (result.exit_code, suite.verdict) == (0, "measured")
    assert "waived requests: 3 requests came, but the engine counted 6" in " ".join(
        result.output.split()
    )


class Host:
    """A host that gives another answer each time."""

    def __init__(self, *looks: HostLook) -> None:
        self.looks = list(looks)

    def __call__(self) -> HostLook:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def on_host(host: Host, clock: Clock | None = None, restart_key: str | None = "aa") -> SuiteResult:
    with serving(Engine()) as url:
        bench = Bench(
            Client(url, MODEL, clock=clock),
            ExpectedFigures(MODEL, unit="vllm.service", restart_key=restart_key),
            host,
            quick=True,
            repeats=3,
        )
        return measure(bench, SUITES["decode"])


GOOD = HostLook("vllm.service", "aa", "aa", "first", 0.02, 44.0, 2411.0, False, "")


def test_a_host_that_agrees_with_the_lock_is_measured() -> None:
    suite = on_host(Host(GOOD, replace(GOOD, temperature_c=61.0)))
    details = {check.name: check.detail for check in suite.checks}
    assert suite.verdict == "measured"
    assert details["lock"] == "restart key aa"
    assert details["cool"] == "44 → 61 °C, 2411 → 2411 MHz"


@pytest.mark.parametrize(
    ("looks", "check", "message"),
    [
        ((replace(GOOD, restart_key="bb"),), "lock", "the engine runs bb: deploy first"),
        ((replace(GOOD, hot="other.service"),), "lock", "hot is other.service"),
        ((GOOD, replace(GOOD, start_id="second")), "lock", "started again during the suite"),
        ((replace(GOOD, busy=0.6),), "quiet", "60% busy"),
        ((GOOD, replace(GOOD, is_throttled=True)), "cool", "slowed down by heat"),
        (
            (GOOD, replace(GOOD, compiler_line="21:04 JIT fused_moe")),
            "compiled",
            "21:04 JIT fused_moe",
        ),
    ],
)
def test_a_host_that_is_not_what_it_should_be(
    looks: tuple[HostLook, ...], check: str, message: str
) -> None:
    suite = on_host(Host(*looks))
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert message in next(item.detail for item in suite.checks if item.name == check)


def test_a_wall_clock_that_jumps_takes_the_score_away() -> None:
    jumps = iter([0.0])
    sound = Clock()

    def wall() -> float:
        return sound.wall() + next(jumps, 90.0)

    suite = on_host(Host(GOOD), Clock(wall=wall))
    assert (suite.verdict, suite.summary) == ("suspect", {})
    detail = next(item.detail for item in suite.checks if item.name == "clocks")
    assert detail.startswith("the wall clock jumped by +90.0 s")


def test_a_clock_that_stands_still_measures_nothing() -> None:
    suite = on_host(Host(GOOD), Clock(now=lambda: 5.0))
    assert (suite.verdict, suite.summary) == ("suspect", {})


def test_a_result_is_printed_for_programs_as_the_file_has_it(tmp_path: Path) -> None:
    with serving(Engine()) as url:
        result = run(url, tmp_path, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["subject"]["served_name"]) == (0, MODEL), result.output
    assert [suite["name"] for suite in document["suites"]] == ["decode"]
    assert len(document["suites"][0]["samples"]) == 3


def test_a_slower_server_is_found_and_a_run_is_noise_to_itself(tmp_path: Path) -> None:
    measure_engine(Engine(), tmp_path, "--repeat", "5")
    first, second = tmp_path / "result.json", tmp_path / "slower.json"
    # A busy machine spreads the samples by half of their median, which hides any factor.
    steady = with_steady_speed(json.loads(first.read_text()))
    first.write_text(json.dumps(steady))
    second.write_text(json.dumps(slower(steady, 3.0)))
    for target_path, code, verdict in ((first, 0, "noise"), (second, 1, "worse")):
        result = CliRunner().invoke(main, ["bench", "compare", str(first), str(target_path)])
        assert result.exit_code == code, result.output
        assert verdict in next(
            line for line in result.output.splitlines() if "decode_tok_s" in line
        )


def with_steady_speed(part: Any) -> Any:
    """A result, or a part of one, whose speeds spread by 1 % around their mean."""
    if isinstance(part, list):
        return [with_steady_speed(item) for item in part]
    if not isinstance(part, dict):
        return part
    if "samples" in part and "mean" in part:
        mean, count = part["mean"], len(part["samples"])
        samples = [mean * (0.995 + 0.01 * place / count) for place in range(count)]
        return {**part, "samples": samples, "low": min(samples), "high": max(samples)}
    return {key: with_steady_speed(value) for key, value in part.items()}


def slower(part: Any, times: float) -> Any:
    """A result, or a part of one, with each speed lower by this factor."""
    if isinstance(part, list):
        return [slower(item, times) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: {name: _quotient(item, times) for name, item in value.items()}
        if key.endswith("tok_s") and isinstance(value, dict)
        else slower(value, times)
        for key, value in part.items()
    }


def _quotient(value: Any, times: float) -> Any:
    if isinstance(value, list):
        return [number / times for number in value]
    return value / times if isinstance(value, float) else value


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 9}', '{"schema": 1}'])
def test_a_file_that_is_no_result_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    result = CliRunner().invoke(main, ["bench", "compare", str(path), str(path)])
    assert result.exit_code == 2
    assert "x.json" in result.output and "Traceback" not in result.output


def test_a_result_of_before_is_of_no_use_beside_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": 2, "subject": {"target": "qwen"}}')
    result = CliRunner().invoke(main, ["bench", "compare", str(path), str(path)])
    words = " ".join(result.output.split())
    assert "not a result of this version; found schema 2; allowed: 3. Measure again." in words


@pytest.mark.parametrize("models", [{"data": []}, {"data": ["x"]}, {"data": 3}, {}])
def test_a_server_that_is_no_engine_is_refused_with_a_sentence(
    tmp_path: Path, models: object
) -> None:
    with local_server.serving({"/v1/models": local_server.as_json(models)}) as server:
        result = run(server.url, tmp_path)
    assert result.exit_code == 2
    assert "the engine serves no model" in result.output
