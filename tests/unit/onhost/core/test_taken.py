"""Questions that an engine has taken stay taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.onhost.core import taken

OLD, NEW = taken.digest("old"), taken.digest("new")


def kept(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_what_an_engine_took_before_counts_after_another_question(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    taken.write(path, {"asked": OLD, "faults": []})
    assert not taken.has(kept(path), NEW)
    taken.write(path, {"asked": NEW, "faults": []})
    assert taken.has(kept(path), OLD) and taken.has(kept(path), NEW)
    taken.write(path, {"asked": OLD, "faults": []})
    assert kept(path) == {"asked": OLD, "faults": [], "taken": [NEW]}


def test_what_it_refused_does_not_count_and_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    taken.write(path, {"asked": OLD, "faults": []})
    taken.write(path, {"asked": NEW, "faults": ["no such flag"]})
    assert taken.has(kept(path), OLD) and not taken.has(kept(path), NEW)
    taken.write(path, {"asked": taken.digest("third"), "faults": []})
    assert not taken.has(kept(path), NEW)


def test_a_word_that_was_taken_back_counts_no_more(tmp_path: Path) -> None:
    """The same question, asked again: a GPU may say what was not asked before."""
    path = tmp_path / "record.json"
    taken.write(path, {"asked": OLD, "faults": []})
    taken.write(path, {"asked": OLD, "faults": ["a kernel is wrong"]})
    assert not taken.has(kept(path), OLD)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"taken": []}'])
def test_a_record_that_cannot_be_read_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    taken.write(path, {"asked": NEW, "faults": []})
    assert kept(path)["taken"] == []
    assert not taken.has(None, NEW)
