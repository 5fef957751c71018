"""The reasons of failed starts, from a host's answer."""

from __future__ import annotations

from lockstep.core.failed_starts import telling

LINES = """\
starting qwen
loading weights
qwen FAILED after 40 s: exited with 1
  one
  two
  three
  four
  five
  ValueError: no such option
  the engine's main process died
starting qwen-fallback
loading weights
test question
took: check 0.1 s
qwen FAILED; its fallback qwen-fallback is hot
""".splitlines()


def test_the_reason_of_a_failed_start_is_kept_though_much_was_said_after_it() -> None:
    assert list(telling(LINES, 3)) == [LINES[2], *LINES[4:10], *LINES[12:]]


def test_where_no_start_failed_the_last_lines_tell() -> None:
    assert list(telling(["a", "  b", "c"], 2)) == ["  b", "c"]
