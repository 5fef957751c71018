"""Sense: what an engine is asked, what it may refuse, and what decides."""

import json
import math
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
from lockstep.onhost.engine.sense_questions import COUNT, ECHO, IDENTIFIERS, TOOL, SenseAnswer

RIGHT = {"echo": "\n".join(IDENTIFIERS), "count": " ".join(map(str, range(1, 101)))}
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


# sense_questions.py: right answers in all the ways in which models write them, and in no other.


def call(**function) -> SenseAnswer:
    return SenseAnswer(calls=({"type": "function", "function": {**CALL, **function}},), tokens=20)


def text_answer(text: str, **more: object) -> SenseAnswer:
    return SenseAnswer(text, tokens=300, finish="stop", **more)


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        (ECHO, "\n".join(f"{n}. **{identifier}**" for n, identifier in enumerate(IDENTIFIERS, 1))),
        (ECHO, ", ".join(IDENTIFIERS) + "."),
        (COUNT, RIGHT["count"].replace(" ", ", ") + "."),
        (COUNT, "Here are the numbers from 1 to 100:\n\n**" + RIGHT["count"] + "**"),
    ],
)
def test_a_right_answer_is_right_in_every_dress(probe, text):
    assert probe.fault_of_answer(text_answer(text)) == ""


@pytest.mark.parametrize(
    ("probe", "text", "words"),
    [
        (ECHO, RIGHT["echo"].replace("TZ91", "TZ97"), "TZ91RGQ86FB3 (number 4) is not in"),
        (
            ECHO,
            RIGHT["echo"].replace(IDENTIFIERS[2], f"banana {IDENTIFIERS[2]}"),
            "something between",
        ),
        (ECHO, "\n".join(reversed(IDENTIFIERS)), "another order"),
        (COUNT, RIGHT["count"].replace(" 57 ", " "), "1 to 56, then '58 59"),
        (COUNT, RIGHT["count"].replace(" 57 ", " banana 57 "), "1 to 56, then 'banana 57"),
        (COUNT, "I cannot do that.", "'I cannot do that.'"),
        (COUNT, "!" * 300, "'!' 300 times in a row"),
        (COUNT, "", "no text, although 300 tokens were counted"),
    ],
)
def test_a_wrong_answer_is_told_with_what_came(probe, text, words):
    assert words in probe.fault_of_answer(text_answer(text))


@pytest.mark.parametrize("text", ["| --- | --- |" * 20, "\n" * 200, "1 " * 20])
def test_rules_blanks_and_short_runs_are_no_repetition(text):
    assert sense_questions.repeated_piece(text) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (call(), ""),
        (call(arguments='{"station": "KX4417", "hours": "6"}'), ""),
        (call(name=""), "a call of ''"),
        (call(arguments=None), "arguments that are no JSON"),
        (call(arguments='{"station": "KX4471", "hours": 6}'), "the arguments"),
        (call(arguments="[]"), "the arguments"),
        (text_answer('{"name": "read_temperature"}'), "no call, but text"),
    ],
)
def test_a_wrong_call_is_told(answer, words):
    fault = TOOL.fault_of_answer(answer)
    assert words in fault and bool(words) == bool(fault)


@pytest.mark.parametrize("value", [None, math.nan, -9999.0])
def test_a_log_probability_that_is_no_number_is_told(value):
    answer = text_answer(RIGHT["echo"], leading=(("Q", -0.1), ("X", value)))
    assert "the log-probability of token 2 ('X')" in ECHO.fault_of_answer(answer)
    assert (
        ECHO.fault_of_answer(text_answer(RIGHT["echo"], leading=(("Q", -0.1), ("X", -40.0)))) == ""
    )


def test_thoughts_that_take_all_tokens_say_nothing_but_over_and_over_they_are_nonsense():
    answer = SenseAnswer(thoughts="Let me see.", tokens=1500, finish="length")
    assert COUNT.fault_of_answer(answer) == ""
    assert COUNT.reason_undecided(answer) == "all 1500 tokens were thoughts"
    assert COUNT.fault_of_answer(SenseAnswer(thoughts="wait, " * 100, tokens=1500, finish="length"))
    # With thinking off, some parsers of thoughts take the whole text.
    answer = SenseAnswer(thoughts=RIGHT["echo"], tokens=80, finish="stop")
    assert (ECHO.fault_of_answer(answer), ECHO.reason_undecided(answer)) == ("", "")


@pytest.mark.parametrize(
    ("message", "text", "thoughts"),
    [
        ({"content": "A", "reasoning": "so"}, "A", "so"),
        ({"content": " A\n", "reasoning_content": "so"}, "A", "so"),
        ({"content": "<think>so</think>A"}, "A", "<think>so</think>"),
        # The template itself opened the thoughts.
        ({"content": "so</think>\n\nA"}, "A", "so</think>"),
        ({"content": "<think>so"}, "", "<think>so"),
        ({"content": None}, "", ""),
    ],
)
def test_thoughts_are_taken_out_of_the_text_and_log_probabilities_are_read(message, text, thoughts):
    logprobs = {"content": [{"token": "A", "logprob": -0.1}]}
    body = {"choices": [{"message": message, "logprobs": logprobs}]}
    body["usage"] = {"completion_tokens": 3}
    answer = sense_questions.parse_answer(json.dumps(body).encode())
    assert (answer.text, answer.thoughts, answer.tokens) == (text, thoughts, 3)
    assert answer.leading == (("A", -0.1),)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>"])
def test_what_is_no_answer_of_the_api_is_an_error(body):
    with pytest.raises(ValueError, match=r"not an answer|Expecting value"):
        sense_questions.parse_answer(body)
