"""The list of guards that `make guards` removes."""

from __future__ import annotations

import guards_removed


def test_every_guard_is_where_the_list_says() -> None:
    assert guards_removed.stale() == []
