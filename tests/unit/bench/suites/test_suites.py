"""What each suite counts, on an engine that answers as it is told."""

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
from lockstep.bench.ruler import Expected
from lockstep.bench.run import Bench, measure
from lockstep.bench.sample import Sample
from lockstep.bench.suites.coding import load_exercises, solution
from lockstep.bench.suites.picture import HEIGHT, WIDTH, draw
from lockstep.bench.suites.suites import SUITES
from lockstep.bench.suites.tools import TASKS, wrong
from lockstep.bench.suites.vision import read
from lockstep.cli.main import main
from lockstep.onhost.engine.probes import IDENTIFIERS

pytestmark = pytest.mark.slow

Answer = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether repeats agree is judged on an engine without time: this machine may be busy."""
    monkeypatch.setattr(ruler, "HICCUP_S", 60.0)


def measured(
    suite: str, engine: Engine | None = None, answer: Answer | None = None, **more: Any
) -> SuiteResult:
    engine = engine or Engine(answer=answer)
    with serving(engine) as url:
        bench = Bench(Client(url, MODEL), Expected(MODEL), repeats=2, **more)
        return measure(bench, SUITES[suite])


def text_of(asked: dict[str, Any]) -> str:
    content = asked["messages"][0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_speculation_is_what_the_counters_moved_by() -> None:
    suite = measured("speculation")
    assert suite.verdict == "measured"
    # Twice four answers of 256 tokens: 128 drafts of three tokens each, of which 60 % are accepted.
    assert suite.summary["drafted"] == 3072
    assert suite.summary["accepted"] == pytest.approx(1843, abs=1)
    assert suite.summary["acceptance"]["mean"] == pytest.approx(0.6, abs=0.001)
    assert len(suite.summary["by_shape"]["prose"]["acceptance"]["samples"]) == 2
    assert suite.summary["tokens_per_step"]["mean"] == pytest.approx(2.8, abs=0.01)


def test_without_speculation_there_is_no_figure_and_no_suspicion() -> None:
    suite = measured("speculation", Engine(no_metrics=True))
    assert (suite.verdict, suite.summary) == ("refused", {})
    assert "--enable-metrics" in suite.refused


def test_all_streams_of_a_level_are_asked_at_once() -> None:
    engine = Engine()
    suite = measured("concurrency", engine, quick=True)
    assert suite.verdict == "measured", suite.checks
    streams = suite.summary["by_streams"]
    assert list(streams) == ["1", "2", "4", "8"]
    assert streams["8"]["total_tok_s"]["low"] > streams["1"]["total_tok_s"]["high"]
    assert len(streams["8"]["total_tok_s"]["samples"]) == 2


def test_prefill_is_left_out_where_the_context_is_shorter() -> None:
    suite = measured("prefill")
    assert suite.verdict == "measured"
    assert list(suite.summary["by_size"]) == ["1500 tokens", "6000 tokens", "24000 tokens"]


def reference(asked: dict[str, Any]) -> dict[str, Any]:
    exercise = next(one for one in load_exercises() if one.instructions in text_of(asked))
    return {"content": f"Here it is.\n```python\n{exercise.reference}```\n"}


def test_references_as_answers_pass_every_exercise() -> None:
    suite = measured(
        "coding", answer=lambda asked: reference(asked) if exercise(asked) else hello()
    )
    assert suite.verdict == "measured", suite.checks
    assert (suite.summary["full_passed"], suite.summary["exercises"]) == (12, 12)
    assert suite.summary["subtests_passed"] == suite.summary["subtests"] > 90


def exercise(asked: dict[str, Any]) -> bool:
    return "Complete this Python file" in text_of(asked)


def hello() -> dict[str, Any]:
    return {"content": "Hello, this is a model."}


def test_one_good_answer_among_bad_ones_is_a_score() -> None:
    def one(asked: dict[str, Any]) -> dict[str, Any]:
        return reference(asked) if "class `Ring(size)`" in text_of(asked) else hello()

    suite = measured("coding", answer=one)
    assert suite.verdict == "measured"
    assert suite.summary["full_passed"] == 1
    slots = suite.summary["by_exercise"]["slots"]
    assert slots == {"passed": 0, "cases": 8, "why": "no code block in the answer"}


def test_zero_of_all_exercises_is_a_broken_ruler_and_not_a_score() -> None:
    suite = measured(
        "coding", answer=lambda asked: {"content": f"No. {zlib.crc32(text_of(asked).encode())}"}
    )
    assert (suite.verdict, suite.summary) == ("suspect", {})
    assert next(check.detail for check in suite.checks if check.name == "zero").startswith("0 of")


def test_without_a_sandbox_no_code_is_run_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    engine = Engine()
    suite = measured("coding", engine)
    assert (suite.verdict, suite.samples) == ("suspect", ())
    assert any("bubblewrap" in check.detail for check in suite.checks)
    assert engine.requests == 2, "the canaries"


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


def caller(asked: dict[str, Any]) -> dict[str, Any]:
    for sentence, name, fixed in TASKS:
        if sentence in text_of(asked):
            return call(name, {**FULL.get(name, {}), **fixed})
    return hello()


def test_ten_valid_calls_are_ten_and_two_messages_in_a_row_are_answered() -> None:
    suite = measured("tools", answer=caller)
    assert suite.verdict == "measured", suite.checks
    assert (suite.summary["valid"], suite.summary["calls"]) == (10, 10)
    assert suite.summary["two_user_messages"] == {"engine": 200}


def test_a_call_that_is_not_valid_is_counted_with_its_reason() -> None:
    def one_wrong(asked: dict[str, Any]) -> dict[str, Any]:
        if "Make mistral hot" in text_of(asked):
            return call("switch_model", {"model": "gpt", "wait": True})
        return caller(asked)

    suite = measured("tools", answer=one_wrong)
    assert suite.summary["valid"] == 9
    assert list(suite.summary["why_not"].values()) == ["model is 'gpt', which is not allowed"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"content": "I would."}, "no tool call but text: 'I would.'"),
        (call("book_room", {}), "calls 'book_room' instead of 'read_file'"),
        (call("read_file", {"path": "x", "first_line": 1}), "last_line is missing"),
        (
            call("read_file", {"path": "x", "first_line": "1", "last_line": 2}),
            "first_line is '1', not of type integer",
        ),
        (
            call("read_file", {"path": "x", "first_line": 1, "last_line": 2, "more": 1}),
            "more is no argument of this tool",
        ),
        (
            call("read_file", {"path": "y", "first_line": 1, "last_line": 2}),
            "path is 'y' instead of 'x'",
        ),
        (
            {"tool_calls": [{"function": {"name": "read_file", "arguments": "{"}}]},
            "arguments are not JSON: '{'",
        ),
    ],
)
def test_why_a_call_is_not_valid(answer: dict[str, Any], why: str) -> None:
    sample = Sample(
        "x", text=answer.get("content") or "", tool_calls=tuple(answer.get("tool_calls", ()))
    )
    assert wrong(sample, "read_file", {"path": "x"}) == why


def seen(asked: dict[str, Any]) -> dict[str, Any]:
    if isinstance(asked["messages"][0]["content"], str):
        return hello()
    return {
        "content": '```json\n{"texts": ["LOCKSTEP", "File Edit View"], "shapes": ["red disc"]}```'
    }


def test_what_was_read_and_what_was_invented() -> None:
    suite = measured("vision", answer=seen, vision_tensors=333)
    assert suite.verdict == "measured", suite.checks
    summary = suite.summary
    assert (summary["http"], summary["vision_tensors"]) == (200, 333)
    assert (summary["words_read"], summary["words"], summary["shapes_read"]) == (1, 6, 1)
    # The menu bar of article 001.
    assert (summary["invented"], summary["invented_what"]) == (3, "EDIT, FILE, VIEW")
    assert "blue square" in summary["missed"] and "READY" in summary["missed"]


def test_a_refused_image_is_no_failure_and_no_score() -> None:
    suite = measured("vision", Engine(text_only=True), vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("refused", {})
    assert suite.notes == ("HTTP 400; the weight map has 0 vision tensors",)


def test_reading_without_a_vision_tower_is_suspect() -> None:
    suite = measured("vision", answer=seen, vision_tensors=0)
    assert (suite.verdict, suite.summary) == ("suspect", {})


def test_the_picture_is_a_png_that_holds_what_it_says() -> None:
    picture = draw()
    assert picture.png.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(picture.png[16:20]), int.from_bytes(picture.png[20:24])) == (
        WIDTH,
        HEIGHT,
    )
    assert picture.texts != draw().texts
    everything = {"texts": picture.texts, "shapes": picture.shapes}
    found = read(picture, Sample("x", text=json.dumps(everything)))
    assert (found["words_read"], found["shapes_read"], found["invented"]) == (6, 2, 0)
    assert found["missed"] == ""


def test_what_thinking_costs() -> None:
    def thinks(asked: dict[str, Any]) -> dict[str, Any]:
        on = (asked.get("chat_template_kwargs") or {}).get("enable_thinking")
        return {"content": "<think>" + "so " * 50 + "</think>green" if on else "green"}

    suite = measured("thinking", answer=thinks)
    assert suite.verdict == "measured", suite.checks
    assert suite.summary["off_by_default"] is True
    assert suite.summary["by_way"]["on"]["thought_characters"] == 157
    assert suite.notes == ()


CALLED = {"name": "read_temperature", "arguments": '{"station": "KX4417", "hours": 6}'}


def sound(asked: dict[str, Any]) -> dict[str, Any]:
    if asked.get("tools"):
        return {"content": None, "tool_calls": [{"type": "function", "function": CALLED}]}
    numbers = " ".join(map(str, range(1, 101)))
    return {"content": numbers if "Count from" in text_of(asked) else "\n".join(IDENTIFIERS)}


def test_sense_of_a_sound_model() -> None:
    suite = measured("sense", answer=sound)
    assert suite.verdict == "measured", suite.checks
    assert suite.summary == {
        "sense": "sound",
        "right": 5,
        "questions": 5,
        "why_not": {},
        "log_probabilities": "not given",
    }


def salad(asked: dict[str, Any]) -> dict[str, Any]:
    return {"content": "1 2 3 banana"} if "Count from" in text_of(asked) else sound(asked)


def uncalled(asked: dict[str, Any]) -> dict[str, Any]:
    return {"content": "read_temperature"} if asked.get("tools") else sound(asked)


SALAD = "1 to 3, then 'banana'"


@pytest.mark.parametrize(
    ("engine", "code", "sense", "why"),
    [
        (Engine(answer=sound), 0, "sound", {}),
        (Engine(answer=salad), 1, "nonsense", {"count": SALAD, "count of two at once": SALAD}),
        (Engine(answer=uncalled), 0, "sound", {"tool": "no call, but text: 'read_temperature'"}),
        (Engine(status=400), 2, "untold", {}),
    ],
)
def test_sense_has_an_exit_code(
    tmp_path: Path, engine: Engine, code: int, sense: str, why: dict[str, str]
) -> None:
    path = tmp_path / "result.json"
    with serving(engine) as url:
        done = CliRunner().invoke(main, ["bench", url, "--suite", "sense", "-o", str(path)])
    result = load(path)
    assert (done.exit_code, result.sense) == (code, sense), done.output
    assert result.suites[0].summary.get("why_not", {}) == why
