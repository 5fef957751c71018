"""The rows of the proof of hostile accounts, and what is made of their outcomes."""

from __future__ import annotations

import pytest
from hostile import named_rows
from hostile_rows import ROWS
from hostile_rows.deploys import LOCKS
from hostile_rows.programs import ASK, FAKE, HOLD, UNFINISHED
from hostile_rows.row import Row


def test_each_row_has_a_name_of_its_own_and_something_to_do_or_a_reason() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    idle = Row("", "").do
    assert [row.name for row in ROWS if (row.do is idle) != bool(row.cannot)] == []


@pytest.mark.parametrize("program", [ASK, FAKE, HOLD, UNFINISHED])
def test_what_eve_runs_is_python(program: str) -> None:
    compile(program, "eve", "exec")


def test_rows_are_chosen_by_their_names() -> None:
    assert named_rows([]) == list(ROWS)
    assert named_rows([ROWS[3].name]) == [ROWS[3]]
    with pytest.raises(SystemExit, match="no row nonsense"):
        named_rows(["nonsense"])


def test_a_spoilt_lock_differs_from_the_whole_one() -> None:
    whole = "version: 1\nimages:\n  a: b\n"
    assert len({whole, *(change(whole) for change in LOCKS.values())}) == 1 + len(LOCKS)
