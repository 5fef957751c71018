"""Some hundred requests that were broken at random: `mutated_requests` by hand sends thousands."""

from __future__ import annotations

from mutated_requests import hold


def test_nothing_falls_over_and_no_engine_is_asked_without_a_key(tmp_path):
    hold(tmp_path, 300)
