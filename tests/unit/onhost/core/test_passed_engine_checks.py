"""Questions that an engine has taken stay taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.onhost.core import passed_engine_checks

OLD, NEW = passed_engine_checks.question_hash("old"), passed_engine_checks.question_hash("new")


def stored_record(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_what_an_engine_took_before_counts_after_another_question(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    passed_engine_checks.write(path, {"asked": OLD, "faults": []})
    assert not passed_engine_checks.has_passed(stored_record(path), NEW)
    passed_engine_checks.write(path, {"asked": NEW, "faults": []})
    assert passed_engine_checks.has_passed(
        stored_record(path), OLD
    ) and passed_engine_checks.has_passed(stored_record(path), NEW)
    passed_engine_checks.write(path, {"asked": OLD, "faults": []})
    assert stored_record(path) == {"asked": OLD, "faults": [], "taken": [NEW]}


def test_what_it_refused_does_not_count_and_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    passed_engine_checks.write(path, {"asked": OLD, "faults": []})
    passed_engine_checks.write(path, {"asked": NEW, "faults": ["no such flag"]})
    assert passed_engine_checks.has_passed(
        stored_record(path), OLD
    ) and not passed_engine_checks.has_passed(stored_record(path), NEW)
    passed_engine_checks.write(
        path, {"asked": passed_engine_checks.question_hash("third"), "faults": []}
    )
    assert not passed_engine_checks.has_passed(stored_record(path), NEW)


def test_a_word_that_was_taken_back_counts_no_more(tmp_path: Path) -> None:
    """The same question, asked again: a GPU may say what was not asked before."""
    path = tmp_path / "record.json"
    passed_engine_checks.write(path, {"asked": OLD, "faults": []})
    passed_engine_checks.write(path, {"asked": OLD, "faults": ["a kernel is wrong"]})
    assert not passed_engine_checks.has_passed(stored_record(path), OLD)


def test_no_more_questions_are_kept_than_generations(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for number in range(20):
        passed_engine_checks.write(path, {"asked": str(number), "faults": []})
    assert passed_engine_checks.passed_question_digests(stored_record(path)) == [
        str(number) for number in range(19, 3, -1)
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"taken": []}'])
def test_a_record_that_cannot_be_read_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    passed_engine_checks.write(path, {"asked": NEW, "faults": []})
    assert stored_record(path)["taken"] == []
    assert not passed_engine_checks.has_passed(None, NEW)
