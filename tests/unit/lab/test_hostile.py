"""The rows of the proof of hostile accounts, and what is made of their outcomes."""

from __future__ import annotations

import pytest
from hostile import named_rows
from hostile_rows import ROWS


def test_each_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_rows_are_chosen_by_their_names() -> None:
    assert named_rows([]) == list(ROWS)
    assert named_rows([ROWS[3].name]) == [ROWS[3]]
    with pytest.raises(SystemExit, match="no row nonsense"):
        named_rows(["nonsense"])
