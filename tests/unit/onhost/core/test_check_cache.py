"""Questions that an engine has taken stay taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.onhost.core import check_cache

OLD, NEW = check_cache.digest("old"), check_cache.digest("new")


def stored_record(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_what_an_engine_took_before_counts_after_another_question(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    check_cache.write(path, {"asked": OLD, "faults": []})
    assert not check_cache.has_passed(stored_record(path), NEW)
    check_cache.write(path, {"asked": NEW, "faults": []})
    assert check_cache.has_passed(stored_record(path), OLD) and check_cache.has_passed(
        stored_record(path), NEW
    )
    check_cache.write(path, {"asked": OLD, "faults": []})
    assert stored_record(path) == {"asked": OLD, "faults": [], "taken": [NEW]}


def test_what_it_refused_does_not_count_and_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    check_cache.write(path, {"asked": OLD, "faults": []})
    check_cache.write(path, {"asked": NEW, "faults": ["no such flag"]})
    assert check_cache.has_passed(stored_record(path), OLD) and not check_cache.has_passed(
        stored_record(path), NEW
    )
    check_cache.write(path, {"asked": check_cache.digest("third"), "faults": []})
    assert not check_cache.has_passed(stored_record(path), NEW)


def test_a_word_that_was_taken_back_counts_no_more(tmp_path: Path) -> None:
    """The same question, asked again: a GPU may say what was not asked before."""
    path = tmp_path / "record.json"
    check_cache.write(path, {"asked": OLD, "faults": []})
    check_cache.write(path, {"asked": OLD, "faults": ["a kernel is wrong"]})
    assert not check_cache.has_passed(stored_record(path), OLD)


def test_no_more_questions_are_kept_than_generations(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for number in range(20):
        check_cache.write(path, {"asked": str(number), "faults": []})
    assert check_cache.passed_question_digests(stored_record(path)) == [
        str(number) for number in range(19, 3, -1)
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"taken": []}'])
def test_a_record_that_cannot_be_read_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    check_cache.write(path, {"asked": NEW, "faults": []})
    assert stored_record(path)["taken"] == []
    assert not check_cache.has_passed(None, NEW)
