"""A line of progress, and what is read back of it."""

import pytest

from lockstep.onhost.fetch.download_progress import Progress, parse_progress


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            Progress("weights a/b", "3 of 13 files", 12.3e9, 70.8e9, "from hf.co"),
            "weights a/b: 3 of 13 files, 12.30 of 70.80 GB, from hf.co",
        ),
        (
            Progress("image ghcr.io/a/b:1", "0 of 2 layers", 10, 120),
            "image ghcr.io/a/b:1: 0 of 2 layers, 0.01 of 0.12 kB",
        ),
    ],
)
def test_what_is_said_is_read_back_and_another_line_tells_no_progress(progress, line):
    assert str(progress) == line
    assert parse_progress(f"  {line}\n") == progress
    assert parse_progress("weights a/b: checking, 1.0 of 2.0 GB") is None
