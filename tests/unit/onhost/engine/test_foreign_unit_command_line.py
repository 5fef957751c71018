"""A unit's command line and variables, as its program gets them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstep.onhost.engine import foreign_unit_command_line


def argv(line: str, unit: str = "x.service", **variables: str) -> list[str]:
    return foreign_unit_command_line.argv(
        f"[Service]\nExecStart={line}\n", unit, variables, {"SECRET"}.__contains__
    )


@pytest.mark.parametrize(
    ("line", "unit", "words"),
    [
        ("-/x/vllm serve 'a b'", "x.service", ["/x/vllm", "serve", "a b"]),
        ("/x %i %I %p %%", "e@a-b.service", ["/x", "a-b", "a/b", "e", "%"]),
        ("/x %n %N", "e@a-b.service", ["/x", "e@a-b.service", "e@a-b"]),
        (r"/x %I", r"e@a\x2db-c.service", ["/x", "a-b/c"]),
        ("/x $MORE ${MORE} x${ONE}y", "x.service", ["/x", "a", "b", "a b", "x1y"]),
        ("/x $NONE ${NONE}", "x.service", ["/x", ""]),
        ("/x $$ONE ${SECRET} $SECRET", "x.service", ["/x", "$ONE", "${SECRET}", "$SECRET"]),
    ],
)
def test_specifiers_and_variables_are_filled_in(line: str, unit: str, words: list[str]) -> None:
    assert argv(line, unit, MORE="a b", ONE="1", SECRET="hf_x") == words


def test_the_last_start_counts_and_lines_may_be_continued() -> None:
    text = "ExecStart=/a\nExecStart=\nExecStart=/b \\\n  --c\n"
    assert foreign_unit_command_line.argv(text, "x.service", {}, lambda _: False) == ["/b", "--c"]
    assert foreign_unit_command_line.argv("[Service]\n", "x.service", {}, lambda _: False) == []


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("A=b c\n", {"A": "b c"}),
        ("# A=no\n; B=no\n\nA=\"b  c\"\nB='d e'\nC = f\n", {"A": "b  c", "B": "d e", "C": "f"}),
        ("A=one \\\ntwo\nno pair\n", {"A": "one two"}),
        ("A=b=c\nA=d\n", {"A": "d"}),
    ],
)
def test_a_file_of_variables(text: str, variables: Mapping[str, str]) -> None:
    assert foreign_unit_command_line.variables_in_file_text(text) == variables


def test_a_file_wins_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "1.env").write_text("A=2\n")
    files = f"{tmp_path}/*.env (ignore_errors=no)\n/nonexistent/x (ignore_errors=yes)"
    state = {"Environment": 'A=1 "B=x y"', "EnvironmentFiles": files}
    assert foreign_unit_command_line.variables(state) == {"A": "2", "B": "x y"}
