"""Broken rulers, planted one by one: each is suspect, none is a score."""

import json
from dataclasses import replace
from itertools import count
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
    suite = load(folder / "result.json").suite("decode")
    assert suite is not None
    return result, suite


def test_a_sound_engine_is_measured(tmp_path: Path) -> None:
    result, suite = measure_engine(Engine(), tmp_path)
    assert (result.exit_code, suite.verdict) == (0, "measured"), result.output
    checks = {check.name: check.verdict for check in suite.checks}
    unread = [name for name, verdict in checks.items() if verdict == "unread"]
    assert unread == ["lock", "quiet", "cool", "compiled"]
    figures = suite.summary["by_shape"]["technical"]
    rate = figures["decode_tok_s"]
    # 256 tokens in 32 steps of 5 ms: 1600 tok/s at best, and any machine is slower.
    assert 0 < rate["low"] <= rate["mean"] <= rate["high"] <= 1600 and len(rate["samples"]) == 3
    assert 0.005 <= figures["first_token_s"]["low"] < suite.samples[0].seconds


def test_a_result_is_printed_for_programs(tmp_path: Path) -> None:
    with serving(Engine()) as url:
        document = json.loads(run(url, tmp_path, "--json").stdout)
    assert document["subject"]["served_name"] == MODEL
    assert [suite["name"] for suite in document["suites"]] == ["decode"]


@pytest.mark.parametrize(
    ("engine", "has_first_token"),
    [
        (Engine(holds=True), True),
        (Engine(holds=True, old=True), False),
        (Engine(kind="sglang", holds=True), False),
        (Engine(kind="llamacpp", no_metrics=True, holds=True), True),
    ],
)
def test_a_first_token_that_is_held_back_is_told_or_unknown(tmp_path, engine, has_first_token):
    result, suite = measure_engine(engine, tmp_path)
    assert (result.exit_code, suite.verdict) == (0, "measured"), result.output
    figures = suite.summary["by_shape"]["technical"]
    assert figures["decode_tok_s"]
    if has_first_token:
        assert figures["first_token_s"] and suite.notes == ()
        # One of 32 steps.
        assert suite.samples[0].first_tokens == 8
    else:
        assert (figures["first_token_s"], figures["after_first_tok_s"]) == (None, None)
        assert "cannot be told: up to 256 tokens came at once" in " ".join(result.output.split())


BROKEN = {
    "a proxy swallows requests": (Engine(swallow=True), "answers", "timed out"),
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


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        (Engine(no_metrics=True), (), "not readable here: lock, requests, tokens, alone"),
        (Engine(crowd=1), ("--waive", "requests"), "waived requests: 3 requests came, but"),
    ],
)
def test_a_check_that_is_unreadable_or_waived_is_said(tmp_path, engine, options, message):
    result, suite = measure_engine(engine, tmp_path, *options)
    assert (result.exit_code, suite.verdict) == (0, "measured")
    assert message in " ".join(result.output.split())


def on_host(*looks: HostLook, clock: Clock | None = None) -> SuiteResult:
    """The suite on a host that gives one answer after the other, and the last one ever after."""
    answers = iter(looks)
    with serving(Engine()) as url:
        bench = Bench(
            Client(url, MODEL, clock=clock),
            ExpectedFigures(MODEL, unit="vllm.service", restart_key="aa"),
            lambda: next(answers, looks[-1]),
            quick=True,
            repeats=3,
        )
        return measure(bench, SUITES["decode"])


GOOD = HostLook("vllm.service", "aa", "aa", "first", 0.02, 44.0, 2411.0, False, "")


def test_a_host_that_agrees_with_the_lock_is_measured() -> None:
    suite = on_host(GOOD, replace(GOOD, temperature_c=61.0))
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
        ((GOOD, replace(GOOD, compiler_line="21:04 JIT moe")), "compiled", "21:04 JIT moe"),
    ],
)
def test_a_host_that_is_not_what_it_should_be(looks: Any, check: str, message: str) -> None:
    suite = on_host(*looks)
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert message in next(item.detail for item in suite.checks if item.name == check)


@pytest.mark.parametrize(
    "clock", [Clock(wall=count(0, 90).__next__), Clock(lambda: 5.0, lambda: 5.0)]
)
def test_a_broken_clock_takes_the_score_away(clock: Clock) -> None:
    """One that jumps, and one that stands still."""
    suite = on_host(GOOD, clock=clock)
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert "clocks" in [check.name for check in suite.checks if check.verdict == "suspect"]


@pytest.mark.parametrize("models", [{"data": []}, {"data": ["x"]}, {}, None])
def test_a_server_that_is_no_engine_is_refused_with_a_sentence(tmp_path, models):
    with local_server.serving({"/v1/models": local_server.as_json(models)}) as server:
        result = run("http://127.0.0.1:9" if models is None else server.url, tmp_path)
    assert result.exit_code == 2 and not (tmp_path / "result.json").exists()
    message = "no engine answers there" if models is None else "the engine serves no model"
    assert message in result.output
