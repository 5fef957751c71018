"""Questions that an engine has taken stay taken."""

import json

import pytest

from lockstep.onhost.core import passed_engine_checks

OLD, NEW, THIRD = map(passed_engine_checks.question_hash, ("old", "new", "third"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.json"


def passed_questions(path, asked: str, *faults: str) -> list[str]:
    """The questions that count as passed after one more was asked."""
    passed_engine_checks.write(path, {"asked": asked, "faults": faults})
    record = json.loads(path.read_text())
    return [asked for asked in (OLD, NEW, THIRD) if passed_engine_checks.has_passed(record, asked)]


def test_what_an_engine_took_counts_until_it_refuses_it(path):
    assert passed_questions(path, OLD) == [OLD]
    # What it refuses does not count, and forgets nothing.
    assert passed_questions(path, NEW, "no such flag") == [OLD]
    assert passed_questions(path, THIRD) == [OLD, THIRD]
    assert passed_questions(path, OLD) == [OLD, THIRD]
    # The same question, asked again: a GPU may say what was not asked before.
    assert passed_questions(path, OLD, "a kernel is wrong") == [THIRD]


def test_no_more_questions_are_kept_than_generations(path):
    for number in range(20):
        passed_questions(path, str(number))
    record = json.loads(path.read_text())
    kept_digests = passed_engine_checks.passed_question_digests(record)
    assert kept_digests == [str(number) for number in range(19, 3, -1)]


@pytest.mark.parametrize("text", ["[]", "{", '{"taken": []}'])
def test_a_record_that_cannot_be_read_is_replaced(path, text):
    path.write_text(text)
    assert passed_questions(path, NEW) == [NEW]
    assert not passed_engine_checks.has_passed(None, NEW)
