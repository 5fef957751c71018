"""The counts of each suite, on an engine that answers as a test tells it."""

import json
import zlib
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
from lockstep.bench.suites.picture import draw
from lockstep.bench.suites.suites import SUITES
from lockstep.bench.suites.tools import TASKS, wrong
from lockstep.bench.suites.vision import read
from lockstep.cli.main import main
from lockstep.onhost.engine.sense_questions import IDENTIFIERS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no hiccup of this busy machine; tests without time judge the agreement of repeats."""
    monkeypatch.setattr(ruler, "HICCUP_S", 60.0)


def measure_suite(suite: str, engine=None, answer=None, **more: Any) -> SuiteResult:
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
    ("name", "engine", "refusal"),
    [
        ("speculation", Engine(no_metrics=True), "--enable-metrics"),
        ("vision", Engine(text_only=True), "HTTP 400"),
    ],
)
def test_what_an_engine_does_not_offer_is_no_suspicion_and_no_score(name, engine, refusal):
    suite = measure_suite(name, engine, vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("refused", {})
    assert refusal in suite.refusal


def test_all_streams_of_a_level_are_asked_at_once() -> None:
    suite = measure_suite("concurrency", quick=True)
    assert suite.verdict == "measured", suite.checks
    streams = suite.summary["by_streams"]
    assert list(streams) == ["1", "2", "4", "8"]
    assert streams["8"]["total_tok_s"]["low"] > streams["1"]["total_tok_s"]["high"]


def hello() -> dict[str, Any]:
    return {"content": "Hello, this is a model."}


def test_one_good_answer_among_bad_ones_is_a_score_and_none_is_a_broken_ruler() -> None:
    [ring] = [every for every in load_exercises() if "class `Ring(size)`" in every.instructions]

    def ring_answer(question: dict[str, Any]) -> dict[str, Any]:
        if "class `Ring(size)`" not in text_of(question):
            return hello()
        return {"content": f"Here it is.\n```python\n{ring.reference}```\n"}

    suite = measure_suite("coding", answer=ring_answer)
    assert (suite.verdict, suite.summary["full_passed"]) == ("measured", 1)
    slots = suite.summary["by_exercise"]["slots"]
    assert slots == {"passed": 0, "cases": 8, "why": "no code block in the answer"}

    def refusal(question: dict[str, Any]) -> dict[str, Any]:
        return {"content": f"No. {zlib.crc32(text_of(question).encode())}"}

    suite = measure_suite("coding", answer=refusal)
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert next(check.detail for check in suite.checks if check.name == "zero").startswith("0 of")


def test_without_a_sandbox_no_code_is_run_and_nothing_is_sent(monkeypatch):
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


def one_wrong(question: dict[str, Any]) -> dict[str, Any]:
    """A valid call for each task but one."""
    for sentence, name, arguments in TASKS:
        if sentence in text_of(question):
            wrong_model = {"model": "gpt"} if "Make mistral hot" in sentence else {}
            return call(name, {**FULL.get(name, {}), **arguments, **wrong_model})
    return hello()


def test_valid_calls_are_counted_and_one_that_is_not_has_its_reason() -> None:
    suite = measure_suite("tools", answer=one_wrong)
    assert suite.verdict == "measured", suite.checks
    assert (suite.summary["valid"], suite.summary["calls"]) == (9, 10)
    assert list(suite.summary["why_not"].values()) == ["model is 'gpt', which is not allowed"]
    # Two messages in a row are answered.
    assert suite.summary["two_user_messages"] == {"engine": 200}


GOOD = {"path": "x", "first_line": 1, "last_line": 2}
BROKEN_CALL = {"tool_calls": [{"function": {"name": "read_file", "arguments": "{"}}]}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"content": "I would."}, "no tool call but text: 'I would.'"),
        (call("book_room", {}), "calls 'book_room' instead of 'read_file'"),
        (BROKEN_CALL, "arguments are not JSON: '{'"),
        (call("read_file", {"path": "x", "first_line": 1}), "last_line is missing"),
        (call("read_file", {**GOOD, "first_line": "1"}), "first_line is '1', not of type integer"),
        (call("read_file", {**GOOD, "more": 1}), "more is no argument of this tool"),
        (call("read_file", {**GOOD, "path": "y"}), "path is 'y' instead of 'x'"),
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
    assert (summary["words_read"], summary["words"], summary["shapes_read"]) == (1, 6, 1)
    # The menu bar of article 001.
    assert (summary["invented"], summary["invented_what"]) == (3, "EDIT, FILE, VIEW")
    assert "blue square" in summary["missed"] and "READY" in summary["missed"]
    # Reading without a vision tower is suspect.
    suite = measure_suite("vision", answer=picture_answer, vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("suspect", {})
    # Another picture each time, of which everything can be read.
    picture = draw()
    assert picture.png.startswith(b"\x89PNG\r\n\x1a\n") and picture.texts != draw().texts
    contents = json.dumps({"texts": picture.texts, "shapes": picture.shapes})
    score = read(picture, BenchSample("x", text=contents))
    assert (score["words_read"], score["shapes_read"], score["invented"]) == (6, 2, 0)


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
    return {"content": "look()"} if question.get("tools") else sound(question)


SALAD = "1 to 3, then 'banana'"


@pytest.mark.parametrize(
    ("engine", "code", "sense", "why"),
    [
        (Engine(answer=sound), 0, "sound", {}),
        (Engine(answer=salad), 1, "nonsense", {"count": SALAD, "count of two at once": SALAD}),
        (Engine(answer=uncalled_answer), 0, "sound", {"tool": "no call, but text: 'look()'"}),
        (Engine(status=400), 2, "untold", {}),
    ],
)
def test_sense_has_an_exit_code(tmp_path, engine, code, sense, why):
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
