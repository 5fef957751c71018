"""Two rulers on one engine: what counts, and when they agree."""

import json
from dataclasses import asdict

import pytest

from benchmarks.side_by_side import Row, ratios, read, row


def test_an_answer_that_came_at_once_has_no_first_token() -> None:
    seen = row("ours", 1, [(101, 0.5, 1.5), (101, 1.0, 1.1)], 90.0, [])
    assert seen.first_s == (0.5,)
    assert seen.decode_tok_s == (100.0,)
    assert seen.whole_tok_s == pytest.approx((101 / 1.5, 101 / 1.1))
    assert seen.at_once == 1


def rows(who: str, *totals: float) -> list[Row]:
    return [Row(who, 8, total_tok_s=float(total)) for total in totals]


def test_rulers_agree_where_their_middle_halves_overlap() -> None:
    [alike] = ratios([*rows("ours", 99, 100, 101), *rows("theirs", 100, 101, 102)])
    assert (alike.name, alike.streams, alike.agree) == ("total_tok_s", 8, True)
    assert alike.ratio == pytest.approx(100 / 101)
    [apart] = ratios([*rows("ours", 99, 100, 101), *rows("theirs", 110, 111, 112)])
    assert not apart.agree


def test_one_sample_has_no_spread_and_no_ratio() -> None:
    assert ratios([*rows("ours", 99), *rows("theirs", 110)]) == []


def test_rows_are_read_as_they_are_printed() -> None:
    printed = [row("theirs", 64, [(101, 0.5, 1.5)], 90.0, ["a fault"])]
    assert read(json.dumps([asdict(one) for one in printed])) == printed
