"""Sense: what an engine is asked, what it may refuse, and what decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from a_model import model
from onhost_fakes import FakeEngine

from lockstep.onhost.engine import (
    openai_api,
    sense_check,
    sense_of_vectors_and_orders,
    sense_questions,
)

RIGHT = {
    "echo": "\n".join(sense_questions.IDENTIFIERS),
    "count": " ".join(map(str, range(1, 101))),
}
CALL = {"name": "read_temperature", "arguments": '{"station": "KX4417", "hours": 6}'}
PROBES = {
    probe.prompt: probe.name
    for probe in (sense_questions.ECHO, sense_questions.COUNT, sense_questions.TOOL)
}


class Engine(FakeEngine):
    """Answers rightly; `text` changes an answer, `refuse` is a key of a request that it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: dict[str, tuple[int, str]] = {}
        self.wrong: dict[str, str] = {}
        self.logprob: float | None = -0.25
        self.message: dict[str, Any] = {}
        self.finish = "stop"
        self.chat = self.reply

    def reply(self, request: dict[str, Any]) -> tuple[int, object]:
        for key, (status, message) in self.refuse.items():
            if key in request:
                return status, {"error": {"message": message}}
        name = PROBES[request["messages"][0]["content"]]
        text = self.wrong.get(name, RIGHT.get(name, ""))
        answer = self.answer(text, 80, **self.message)
        choice = answer["choices"][0]
        choice["finish_reason"] = self.finish
        if name == "tool" and "tool" not in self.wrong:
            choice["message"]["tool_calls"] = [{"type": "function", "function": CALL}]
        if request.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": text[:3], "logprob": self.logprob}]}
        return 200, answer

    @property
    def probe_names(self) -> list[str]:
        return [PROBES[request["messages"][0]["content"]] for request in self.requests]


def raising(error: Exception) -> Any:
    def wrong(*_: object) -> str:
        raise error

    return wrong


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def look(engine: Engine, **keys: Any) -> sense_check.SenseVerdict:
    return sense_check.judge_engine_sense(
        model(url=engine.url, served_name="served", **keys), "s3cret"
    )


def test_a_sound_model_is_asked_everything_and_two_questions_at_once(engine: Engine) -> None:
    verdict = look(engine, tools=True)
    assert verdict.state == "sound"
    assert verdict.words == (
        "makes sense: echo, count, tool, echo of two at once, count of two at once"
    )
    assert engine.probe_names[:3] == ["echo", "count", "tool"]
    assert sorted(engine.probe_names[3:]) == ["count", "echo"]
    first = engine.requests[0]
    assert (first["temperature"], first["logprobs"], first["model"]) == (0, True, "served")
    assert first["chat_template_kwargs"]["enable_thinking"] is False
    assert set(engine.keys) == {"Bearer s3cret"}


def test_a_recipe_without_a_parser_is_asked_for_no_call(engine: Engine) -> None:
    assert "tool" not in look(engine).words
    assert "tool" not in engine.probe_names


def test_the_first_nonsense_ends_it_with_what_was_expected_and_what_came(engine: Engine) -> None:
    engine.wrong["echo"] = RIGHT["echo"].replace("TZ91", "TZ97")
    verdict = look(engine, tools=True)
    assert verdict.state == "nonsense"
    assert verdict.words.startswith(
        "talks nonsense: echo: expected the eight identifiers of the prompt, came TZ91RGQ86FB3"
    )
    assert engine.probe_names == ["echo"]


def test_an_answer_that_is_wrong_beside_another_request_only_is_told_so(engine: Engine) -> None:
    alone = {"echo": 0, "count": 0}

    def reply(request: dict[str, Any]) -> tuple[int, object]:
        name = PROBES[request["messages"][0]["content"]]
        alone[name] += 1
        engine.wrong = {"count": "1 2 4"} if alone["count"] > 1 else {}
        return engine.reply(request)

    engine.chat = reply
    words = look(engine).words
    assert "count of two at once: right alone, but beside another request: expected 1 to 1" in words


@pytest.mark.parametrize(
    ("refuse", "silent"),
    [
        ({"chat_template_kwargs": (400, "chat_template is not supported")}, ""),
        ({"logprobs": (400, "logprobs are not supported")}, "logprobs are not supported"),
        ({"logprobs": (500, "Internal Server Error")}, "Internal Server Error"),
        (
            {"logprobs": (422, "no"), "chat_template_kwargs": (400, "no template")},
            "could not be asked: log-probabilities",
        ),
    ],
)
def test_what_an_engine_refuses_is_left_out_and_said(
    engine: Engine, refuse: dict[str, Any], silent: str
) -> None:
    engine.refuse = refuse
    verdict = look(engine)
    assert verdict.state == "sound"
    assert silent in verdict.words
    assert not set(refuse) & set(engine.requests[-1])


def test_an_engine_that_ends_at_log_probabilities_is_not_asked_for_them(engine: Engine) -> None:
    verdict = look(engine, logprobs=False)
    assert verdict.state == "sound"
    assert "could not be asked: log-probabilities: this engine ends" in verdict.words
    assert not any("logprobs" in request for request in engine.requests)


@pytest.mark.parametrize(
    "reply",
    [
        lambda engine: setattr(engine, "logprob", None),
        lambda engine: engine.refuse.update(
            logprobs=(500, "Out of range float values are not JSON compliant: nan")
        ),
    ],
)
def test_log_probabilities_that_are_no_numbers_are_nonsense(engine: Engine, reply: Any) -> None:
    reply(engine)
    verdict = look(engine)
    assert verdict.state == "nonsense"
    assert "log-probabilit" in verdict.words


@pytest.mark.parametrize(
    ("refusal", "state", "words"),
    [
        ((400, "max_tokens is too large"), "untold", "max_tokens is too large"),
        ((503, "EngineCore died"), "nonsense", "no answer came"),
    ],
)
def test_an_engine_that_refuses_every_question_is_no_liar_and_one_that_ends_has_failed(
    engine: Engine, refusal: tuple[int, str], state: str, words: str
) -> None:
    engine.refuse["messages"] = refusal
    verdict = look(engine)
    assert (verdict.state, words in verdict.words) == (state, True)


def test_a_model_that_only_thinks_is_no_liar(engine: Engine) -> None:
    engine.wrong = {"echo": "", "count": ""}
    engine.message, engine.finish = {"reasoning": "Let me see."}, "length"
    verdict = look(engine)
    assert verdict.state == "untold"
    assert "all 80 tokens were thoughts" in verdict.words


def test_a_slow_engine_is_asked_no_more_after_a_while(engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr(sense_check, "ENOUGH_S", -1.0)
    assert look(engine).state == "untold"
    assert engine.requests == []


@pytest.mark.parametrize(
    ("wrong", "state", "words"),
    [
        (lambda *_: "", "sound", "makes sense: embedding"),
        (lambda *_: "two equal texts differ", "nonsense", "embedding: two equal texts differ"),
        (raising(openai_api.NotReady("not finite")), "nonsense", "embedding: not finite"),
        (raising(openai_api.RequestRefusal("HTTP 400")), "untold", "embedding: HTTP 400"),
    ],
)
def test_a_model_that_generates_nothing_is_asked_by_its_kind(
    engine: Engine, monkeypatch: Any, wrong: Any, state: str, words: str
) -> None:
    monkeypatch.setitem(sense_of_vectors_and_orders.WRONG, "embedding", wrong)
    verdict = look(engine, kind="embedding")
    assert (verdict.state, words in verdict.words) == (state, True)
    assert engine.requests == []
