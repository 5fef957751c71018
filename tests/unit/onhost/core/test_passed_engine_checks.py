"""Questions that an engine has taken stay taken."""

from __future__ import annotations

import json

import pytest

from lockstep.onhost.core import passed_engine_checks

OLD, NEW, THIRD = map(passed_engine_checks.question_hash, ("old", "new", "third"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.json"


def passed_questions(path, *answers: tuple[str, str]) -> list[str]:
    """The questions that count as passed after these answers: a question, and its fault or ""."""
    for asked, fault in answers:
        passed_engine_checks.write(path, {"asked": asked, "faults": [fault] if fault else []})
    record = json.loads(path.read_text())
    return [asked for asked in (OLD, NEW, THIRD) if passed_engine_checks.has_passed(record, asked)]


def test_what_an_engine_took_before_counts_after_another_question(path):
    assert passed_questions(path, (OLD, "")) == [OLD]
    assert passed_questions(path, (NEW, "")) == [OLD, NEW]
    assert passed_questions(path, (OLD, "")) == [OLD, NEW]
    assert json.loads(path.read_text()) == {"asked": OLD, "faults": [], "taken": [NEW]}


def test_what_it_refused_does_not_count_and_forgets_nothing(path):
    assert passed_questions(path, (OLD, ""), (NEW, "no such flag")) == [OLD]
    assert passed_questions(path, (THIRD, "")) == [OLD, THIRD]
    # The same question, asked again: a GPU may say what was not asked before.
    assert passed_questions(path, (OLD, "a kernel is wrong")) == [THIRD]


def test_no_more_questions_are_kept_than_generations(path):
    passed_questions(path, *((str(number), "") for number in range(20)))
    record = json.loads(path.read_text())
    kept_digests = passed_engine_checks.passed_question_digests(record)
    assert kept_digests == [str(number) for number in range(19, 3, -1)]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"taken": []}'])
def test_a_record_that_cannot_be_read_is_replaced(path, text):
    path.write_text(text)
    assert passed_questions(path, (NEW, "")) == [NEW]
    assert json.loads(path.read_text())["taken"] == []
    assert not passed_engine_checks.has_passed(None, NEW)
