"""The counts of each suite, on an engine that answers as a test tells it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broken_engine import MODEL, Engine, serving
from click.testing import CliRunner

from lockstep.bench import ruler
from lockstep.bench.client import Client
from lockstep.bench.results import SuiteResult, load
from lockstep.bench.ruler import ExpectedFigures
from lockstep.bench.run import Bench, measure
from lockstep.bench.sample import BenchSample
from lockstep.bench.suites.coding import load_exercises, solution
from lockstep.bench.suites.picture import HEIGHT, WIDTH, draw
from lockstep.bench.suites.suites import SUITES
from lockstep.bench.suites.tools import TASKS, wrong
from lockstep.bench.suites.vision import read
from lockstep.cli.main import main
from lockstep.onhost.engine.sense_questions import IDENTIFIERS

pytestmark = pytest.mark.slow

Answer = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no hiccup of this busy machine; tests without time judge the agreement of repeats."""
    monkeypatch.setattr(ruler, "HICCUP_S", 60.0)


def measure_suite(
    suite: str, engine: Engine | None = None, answer: Answer | None = None, **more: Any
) -> SuiteResult:
    engine = engine or Engine(answer=answer)
    with serving(engine) as url:
        bench = Bench(Client(url, MODEL), ExpectedFigures(MODEL), repeats=2, **more)
        return measure(bench, SUITES[suite])


def text_of(question: dict[str, Any]) -> str:
    content = question["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_speculation_is_what_the_counters_moved_by() -> None:
    suite = measure_suite("speculation")
    assert suite.verdict == "measured"
    # Twice four answers of 256 tokens: 128 drafts of three tokens each, of which 60 % are accepted.
    assert suite.summary["drafted_tokens"] == 3072
    assert suite.summary["accepted_tokens"] == pytest.approx(1843, abs=1)
    assert suite.summary["acceptance"]["mean"] == pytest.approx(0.6, abs=0.001)
    assert len(suite.summary["by_shape"]["prose"]["acceptance"]["samples"]) == 2
    assert suite.summary["tokens_per_step"]["mean"] == pytest.approx(2.8, abs=0.01)


@pytest.mark.parametrize(
    ("name", "engine", "refusal", "notes"),
    [
        ("speculation", Engine(no_metrics=True), "--enable-metrics", ()),
        (
            *("vision", Engine(text_only=True), "HTTP 400"),
            ("HTTP 400; the weight map has 0 vision tensors",),
        ),
    ],
)
def test_what_an_engine_does_not_offer_is_no_suspicion_and_no_score(
    name: str, engine: Engine, refusal: str, notes: tuple[str, ...]
) -> None:
    suite = measure_suite(name, engine, vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("refused", {})
    assert refusal in suite.refusal and suite.notes == notes


def test_all_streams_of_a_level_are_asked_at_once() -> None:
    engine = Engine()
    suite = measure_suite("concurrency", engine, quick=True)
    assert suite.verdict == "measured", suite.checks
    streams = suite.summary["by_streams"]
    assert list(streams) == ["1", "2", "4", "8"]
    assert streams["8"]["total_tok_s"]["low"] > streams["1"]["total_tok_s"]["high"]
    assert len(streams["8"]["total_tok_s"]["samples"]) == 2


def test_prefill_is_left_out_where_the_context_is_shorter() -> None:
    suite = measure_suite("prefill")
    assert suite.verdict == "measured"
    assert list(suite.summary["by_size"]) == ["1500 tokens", "6000 tokens", "24000 tokens"]


def reference(question: dict[str, Any]) -> dict[str, Any]:
    exercise = next(
        candidate for candidate in load_exercises() if candidate.instructions in text_of(question)
    )
    return {"content": f"Here it is.\n```python\n{exercise.reference}```\n"}


def test_references_as_answers_pass_every_exercise() -> None:
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        is_exercise = "Complete this Python file" in text_of(question)
        return reference(question) if is_exercise else hello()

    suite = measure_suite("coding", answer=answer)
    assert suite.verdict == "measured", suite.checks
    assert (suite.summary["full_passed"], suite.summary["exercises"]) == (12, 12)
    assert suite.summary["subtests_passed"] == suite.summary["subtests"] > 90


def hello() -> dict[str, Any]:
    return {"content": "Hello, this is a model."}


def test_one_good_answer_among_bad_ones_is_a_score_and_none_is_a_broken_ruler() -> None:
    def ring_answer(question: dict[str, Any]) -> dict[str, Any]:
        return reference(question) if "class `Ring(size)`" in text_of(question) else hello()

    suite = measure_suite("coding", answer=ring_answer)
    assert (suite.verdict, suite.summary["full_passed"]) == ("measured", 1)
    slots = suite.summary["by_exercise"]["slots"]
    assert slots == {"passed": 0, "cases": 8, "why": "no code block in the answer"}

    def refusal(question: dict[str, Any]) -> dict[str, Any]:
        return {"content": f"No. {zlib.crc32(text_of(question).encode())}"}

    suite = measure_suite("coding", answer=refusal)
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert next(check.detail for check in suite.checks if check.name == "zero").startswith("0 of")


def test_without_a_sandbox_no_code_is_run_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    engine = Engine()
    suite = measure_suite("coding", engine)
    assert (suite.verdict, suite.samples) == ("suspect", ())
    assert any("bubblewrap" in check.detail for check in suite.checks)
    assert engine.requests == 2, "the test questions"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("x\n```py\nab\n```\ny\n```\nabc\n```", "abc\n"),
        ("<think>```python\nlong long long\n```</think>```\nb\n```", "b\n"),
        ("def f():\n  pass", "def f():\n  pass"),
        ("I cannot.", None),
    ],
)
def test_the_code_of_an_answer(text: str, code: str | None) -> None:
    assert solution(text) == code


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"type": "function", "function": function}]}


FULL = {"book_room": {"hours": 0.5, "guests": []}}


def caller(question: dict[str, Any]) -> dict[str, Any]:
    for sentence, name, arguments in TASKS:
        if sentence in text_of(question):
            return call(name, {**FULL.get(name, {}), **arguments})
    return hello()


def test_ten_valid_calls_are_ten_and_one_that_is_not_valid_is_counted_with_its_reason() -> None:
    suite = measure_suite("tools", answer=caller)
    assert suite.verdict == "measured", suite.checks
    assert (suite.summary["valid"], suite.summary["calls"]) == (10, 10)
    # Two messages in a row are answered.
    assert suite.summary["two_user_messages"] == {"engine": 200}

    def one_wrong(question: dict[str, Any]) -> dict[str, Any]:
        if "Make mistral hot" in text_of(question):
            return call("switch_model", {"model": "gpt", "wait": True})
        return caller(question)

    summary = measure_suite("tools", answer=one_wrong).summary
    assert summary["valid"] == 9
    assert list(summary["why_not"].values()) == ["model is 'gpt', which is not allowed"]


GOOD = {"path": "x", "first_line": 1, "last_line": 2}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"content": "I would."}, "no tool call but text: 'I would.'"),
        (call("book_room", {}), "calls 'book_room' instead of 'read_file'"),
        (call("read_file", {"path": "x", "first_line": 1}), "last_line is missing"),
        (call("read_file", {**GOOD, "first_line": "1"}), "first_line is '1', not of type integer"),
        (call("read_file", {**GOOD, "more": 1}), "more is no argument of this tool"),
        (call("read_file", {**GOOD, "path": "y"}), "path is 'y' instead of 'x'"),
        (
            {"tool_calls": [{"function": {"name": "read_file", "arguments": "{"}}]},
            "arguments are not JSON: '{'",
        ),
    ],
)
def test_why_a_call_is_not_valid(answer: dict[str, Any], why: str) -> None:
    calls = tuple(answer.get("tool_calls", ()))
    sample = BenchSample("x", text=answer.get("content") or "", tool_calls=calls)
    assert wrong(sample, "read_file", {"path": "x"}) == why


def picture_answer(question: dict[str, Any]) -> dict[str, Any]:
    if isinstance(question["messages"][0]["content"], str):
        return hello()
    contents = {"texts": ["LOCKSTEP", "File Edit View"], "shapes": ["red disc"]}
    return {"content": f"```json\n{json.dumps(contents)}```"}


def test_what_was_read_and_what_was_invented() -> None:
    suite = measure_suite("vision", answer=picture_answer, vision_tensors=333)
    assert suite.verdict == "measured", suite.checks
    summary = suite.summary
    assert (summary["http"], summary["vision_tensors"]) == (200, 333)
    assert (summary["words_read"], summary["words"], summary["shapes_read"]) == (1, 6, 1)
    # The menu bar of article 001.
    assert (summary["invented"], summary["invented_what"]) == (3, "EDIT, FILE, VIEW")
    assert "blue square" in summary["missed"] and "READY" in summary["missed"]
    # Reading without a vision tower is suspect.
    suite = measure_suite("vision", answer=picture_answer, vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("suspect", {})


def test_the_picture_is_a_png_that_holds_what_it_says() -> None:
    picture = draw()
    assert picture.png.startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.png[16:24] == WIDTH.to_bytes(4) + HEIGHT.to_bytes(4)
    assert picture.texts != draw().texts
    contents = {"texts": picture.texts, "shapes": picture.shapes}
    score = read(picture, BenchSample("x", text=json.dumps(contents)))
    assert (score["words_read"], score["shapes_read"], score["invented"]) == (6, 2, 0)
    assert score["missed"] == ""


def test_what_thinking_costs() -> None:
    def thinks(question: dict[str, Any]) -> dict[str, Any]:
        on = (question.get("chat_template_kwargs") or {}).get("enable_thinking")
        return {"content": "<think>" + "so " * 50 + "</think>green" if on else "green"}

    suite = measure_suite("thinking", answer=thinks)
    assert suite.verdict == "measured", suite.checks
    assert suite.summary["off_by_default"] is True
    assert suite.summary["by_way"]["on"]["thought_characters"] == 157
    assert suite.notes == ()


CALLED = {"name": "read_temperature", "arguments": '{"station": "KX4417", "hours": 6}'}


def sound(question: dict[str, Any]) -> dict[str, Any]:
    if question.get("tools"):
        return {"content": None, "tool_calls": [{"type": "function", "function": CALLED}]}
    numbers = " ".join(map(str, range(1, 101)))
    return {"content": numbers if "Count from" in text_of(question) else "\n".join(IDENTIFIERS)}


def salad(question: dict[str, Any]) -> dict[str, Any]:
    return {"content": "1 2 3 banana"} if "Count from" in text_of(question) else sound(question)


def uncalled_answer(question: dict[str, Any]) -> dict[str, Any]:
    return {"content": "read_temperature"} if question.get("tools") else sound(question)


SALAD = "1 to 3, then 'banana'"


@pytest.mark.parametrize(
    ("engine", "code", "sense", "why"),
    [
        (Engine(answer=sound), 0, "sound", {}),
        (Engine(answer=salad), 1, "nonsense", {"count": SALAD, "count of two at once": SALAD}),
        (
            *(Engine(answer=uncalled_answer), 0, "sound"),
            {"tool": "no call, but text: 'read_temperature'"},
        ),
        (Engine(status=400), 2, "untold", {}),
    ],
)
def test_sense_has_an_exit_code(
    tmp_path: Path, engine: Engine, code: int, sense: str, why: dict[str, str]
) -> None:
    path = tmp_path / "result.json"
    with serving(engine) as url:
        invocation = CliRunner().invoke(main, ["bench", url, "--suite", "sense", "-o", str(path)])
    result = load(path)
    assert (invocation.exit_code, result.sense) == (code, sense), invocation.output
    summary = result.suites[0].summary
    assert summary.get("why_not", {}) == why
    if code == 0:
        assert (summary["right"], summary["questions"]) == (5 - len(why), 5)
        assert summary["log_probabilities"] == "not given"
