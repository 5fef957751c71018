"""Sense: what an engine is asked, what it may refuse, and what decides."""

from typing import Any
from unittest import mock

import pytest
from a_model import model
from onhost_fakes import FakeEngine

from lockstep.onhost.engine import (
    openai_api,
    sense_check,
    sense_of_vectors_and_orders,
    sense_questions,
)

ECHO, COUNT, TOOL = sense_questions.ECHO, sense_questions.COUNT, sense_questions.TOOL

RIGHT = {
    "echo": "\n".join(sense_questions.IDENTIFIERS),
    "count": " ".join(map(str, range(1, 101))),
}
CALL = {"name": "read_temperature", "arguments": '{"station": "KX4417", "hours": 6}'}
PROBES = {probe.prompt: probe.name for probe in (ECHO, COUNT, TOOL)}


class Engine(FakeEngine):
    """Answers rightly; `text` changes an answer, `refuse` is a key of a request that it refuses."""

    def __init__(self):
        super().__init__()
        self.refuse, self.wrong, self.message = {}, {}, {}
        self.logprob, self.finish = -0.25, "stop"
        self.chat = self.reply

    def reply(self, request):
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


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.close()


def look(engine: Engine, state: str, **keys: Any) -> str:
    """The words of the verdict on an engine, which must be this one."""
    asked_model = model(url=engine.url, served_name="served", **keys)
    verdict = sense_check.judge_engine_sense(asked_model, "s3cret")
    assert verdict.state == state
    return verdict.words


def test_a_sound_model_is_asked_everything_and_two_questions_at_once(engine):
    words = look(engine, "sound", tools=True)
    assert words == "makes sense: echo, count, tool, echo of two at once, count of two at once"
    assert engine.probe_names[:3] == ["echo", "count", "tool"]
    assert sorted(engine.probe_names[3:]) == ["count", "echo"]
    first = engine.requests[0]
    assert (first["temperature"], first["logprobs"], first["model"]) == (0, True, "served")
    assert first["chat_template_kwargs"]["enable_thinking"] is False
    assert set(engine.keys) == {"Bearer s3cret"}


def test_a_recipe_may_have_no_parser_of_calls_and_no_log_probabilities(engine):
    words = look(engine, "sound", logprobs=False)
    assert "could not be asked: log-probabilities: this engine ends" in words
    assert not any("logprobs" in request for request in engine.requests)
    assert "tool" not in words and "tool" not in engine.probe_names


def test_the_first_nonsense_ends_it_with_what_was_expected_and_what_came(engine):
    engine.wrong["echo"] = RIGHT["echo"].replace("TZ91", "TZ97")
    assert look(engine, "nonsense", tools=True).startswith(
        "talks nonsense: echo: expected the eight identifiers of the prompt, came TZ91RGQ86FB3"
    )
    assert engine.probe_names == ["echo"]


def test_an_answer_that_is_wrong_beside_another_request_only_is_told_so(engine):
    def reply(request):
        if engine.probe_names.count("count") > 1:
            engine.wrong = {"count": "1 2 4"}
        return engine.reply(request)

    engine.chat = reply
    words = look(engine, "nonsense")
    assert "count of two at once: right alone, but beside another request: expected 1 to 1" in words


@pytest.mark.parametrize(
    ("refuse", "silent"),
    [
        ({"chat_template_kwargs": (400, "chat_template is not supported")}, ""),
        ({"logprobs": (500, "Internal Server Error")}, "Internal Server Error"),
        ({"logprobs": (422, "no"), "chat_template_kwargs": (400, "no template")}, "not be asked"),
    ],
)
def test_what_an_engine_refuses_is_left_out_and_said(engine, refuse, silent):
    engine.refuse = refuse
    assert silent in look(engine, "sound")
    assert not set(refuse) & set(engine.requests[-1])


NAN = "Out of range float values are not JSON compliant: nan"
THOUGHTS = {"message": {"reasoning": "Let me see."}, "finish": "length"}


@pytest.mark.parametrize(
    ("traits", "state", "words"),
    [
        ({"logprob": None}, "nonsense", "log-probabilit"),
        ({"refuse": {"logprobs": (500, NAN)}}, "nonsense", "log-probabilit"),
        ({"refuse": {"messages": (400, "it is too large")}}, "untold", "it is too large"),
        ({"refuse": {"messages": (503, "EngineCore died")}}, "nonsense", "no answer came"),
        ({"wrong": {"echo": "", "count": ""}, **THOUGHTS}, "untold", "all 80 tokens were thoughts"),
    ],
    ids=["no number", "not a number", "refuses all", "ends", "only thinks"],
)
def test_an_engine_that_cannot_answer_is_no_liar_and_one_that_ends_failed(
    engine, traits, state, words
):
    vars(engine).update(traits)
    assert words in look(engine, state)


def test_a_slow_engine_is_asked_no_more_after_a_while(engine, monkeypatch):
    monkeypatch.setattr(sense_check, "ENOUGH_S", -1.0)
    look(engine, "untold")
    assert engine.requests == []


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        ("", "sound", "makes sense: embedding"),
        ("two equal texts differ", "nonsense", "embedding: two equal texts differ"),
        (openai_api.NotReady("not finite"), "nonsense", "embedding: not finite"),
        (openai_api.RequestRefusal("HTTP 400"), "untold", "embedding: HTTP 400"),
    ],
)
def test_a_model_that_generates_nothing_is_asked_by_its_kind(engine, answer, state, words):
    with mock.patch.dict(sense_of_vectors_and_orders.WRONG, embedding=mock.Mock()) as by_kind:
        by_kind["embedding"].side_effect = [answer]
        assert words in look(engine, state, kind="embedding")
    assert engine.requests == []
