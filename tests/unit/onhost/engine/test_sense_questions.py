"""Right answers: in all the ways in which models write them, and in no other."""

import json
import math

import pytest

from lockstep.onhost.engine import sense_questions
from lockstep.onhost.engine.sense_questions import COUNT, ECHO, IDENTIFIERS, TOOL, SenseAnswer

LINES = "\n".join(IDENTIFIERS)
NUMBERS = " ".join(map(str, range(1, 101)))
CALL = {"name": "read_temperature", "arguments": '{"station": "KX4417", "hours": 6}'}


def call(**function) -> SenseAnswer:
    return SenseAnswer(calls=({"type": "function", "function": {**CALL, **function}},), tokens=20)


def text_answer(text: str, **more: object) -> SenseAnswer:
    return SenseAnswer(text, tokens=300, finish="stop", **more)


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        (ECHO, "\n".join(f"{n}. **{identifier}**" for n, identifier in enumerate(IDENTIFIERS, 1))),
        (ECHO, ", ".join(IDENTIFIERS) + "."),
        (COUNT, NUMBERS.replace(" ", ", ") + "."),
        (COUNT, f"Here are the numbers from 1 to 100:\n\n**{NUMBERS}**"),
    ],
)
def test_a_right_answer_is_right_in_every_dress(probe, text):
    assert probe.fault_of_answer(text_answer(text)) == ""


@pytest.mark.parametrize(
    ("probe", "text", "words"),
    [
        (ECHO, LINES.replace("TZ91", "TZ97"), "TZ91RGQ86FB3 (number 4) is not in"),
        (ECHO, LINES.replace(IDENTIFIERS[2], f"banana {IDENTIFIERS[2]}"), "something between"),
        (ECHO, "\n".join(reversed(IDENTIFIERS)), "another order"),
        (COUNT, NUMBERS.replace(" 57 ", " "), "1 to 56, then '58 59"),
        (COUNT, NUMBERS.replace(" 57 ", " banana 57 "), "1 to 56, then 'banana 57"),
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
    answer = text_answer(LINES, leading=(("Q", -0.1), ("X", value)))
    assert "the log-probability of token 2 ('X')" in ECHO.fault_of_answer(answer)
    assert ECHO.fault_of_answer(text_answer(LINES, leading=(("Q", -0.1), ("X", -40.0)))) == ""


def test_thoughts_that_take_all_tokens_say_nothing_but_over_and_over_they_are_nonsense():
    answer = SenseAnswer(thoughts="Let me see.", tokens=1500, finish="length")
    assert COUNT.fault_of_answer(answer) == ""
    assert COUNT.reason_undecided(answer) == "all 1500 tokens were thoughts"
    assert COUNT.fault_of_answer(SenseAnswer(thoughts="wait, " * 100, tokens=1500, finish="length"))
    # With thinking off, some parsers of thoughts take the whole text.
    answer = SenseAnswer(thoughts=LINES, tokens=80, finish="stop")
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
