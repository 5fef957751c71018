"""Some hundred requests that were broken at random; tests/proofs/mutating.py sends thousands."""

from __future__ import annotations

from mutating import hold


def test_nothing_falls_over_and_no_engine_is_asked_without_a_key(tmp_path):
    hold(tmp_path, 300)
