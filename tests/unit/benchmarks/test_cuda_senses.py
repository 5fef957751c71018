"""The parts of the stage `sense` that need no GPU: its questions and its damages."""

import random

from benchmarks.cuda import questions, senses
from lockstep.onhost.engine import sense_questions


def _answer(question: questions.Question) -> sense_questions.SenseAnswer:
    return sense_questions.SenseAnswer(question.answer, tokens=1)


def test_questions_are_the_probes_with_other_values() -> None:
    echo = questions.echo(random.Random(1))
    assert echo.prompt != sense_questions.ECHO.prompt
    assert (
        echo.prompt.replace(echo.answer, "\n".join(sense_questions.IDENTIFIERS))
        == sense_questions.ECHO.prompt
    )
    assert sense_questions.ECHO.fault_of_answer(_answer(echo)), (
        "another's identifiers are no right answer"
    )
    assert questions.count(sense_questions.HIGHEST).prompt == sense_questions.COUNT.prompt
    assert not sense_questions.COUNT.fault_of_answer(
        _answer(questions.count(sense_questions.HIGHEST))
    )
    assert sense_questions.COUNT.fault_of_answer(
        _answer(questions.count(sense_questions.HIGHEST - 1))
    )
    tool = questions.tool(random.Random(1))
    assert tool.tool
    assert sense_questions.STATION not in tool.prompt + tool.answer


def test_no_identifier_of_a_probe_is_learnt() -> None:
    dice = random.Random(1)
    learnt = "\n".join(questions.any_of(dice).prompt for _ in range(500))
    assert not [
        identifier
        for identifier in (*sense_questions.IDENTIFIERS, sense_questions.STATION)
        if identifier in learnt
    ]


def test_each_damage_is_another_and_repeats_come_last() -> None:
    every = senses.damages()
    assert len({str(value) for value in every.values()}) == len(every) >= 60
    seeds = [value.get("seed", 0) for value in every.values() if value["kind"] == "flip"]
    assert seeds == sorted(seeds)
