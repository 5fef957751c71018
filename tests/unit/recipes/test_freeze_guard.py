"""The list of guards that `make guards` removes."""

from __future__ import annotations

import guards_removed
import pytest


def test_every_guard_is_where_the_list_says() -> None:
    assert guards_removed.stale() == []


def test_words_that_name_no_guard_run_no_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert guards_removed.main(["--help"]) == 2
    assert "usage: guards-removed" in capsys.readouterr().err
