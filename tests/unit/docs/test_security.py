"""Statements of docs/security.md about accounts name existing rows and tests that hold them."""

import re
from pathlib import Path

import pytest
from hostile_rows import ROWS

ROOT = Path(__file__).parents[3]
SECTION = re.compile(
    r"^## What a local account can and cannot do\n(.*?)^## ", re.DOTALL | re.MULTILINE
)
ROW = re.compile(r"\b[A-Z]\d+[a-z]?(?:-[a-z]+)?\b")
#: A file, and perhaps how the names of the tests end that are meant.
TEST = re.compile(r"`(?:tests/[\w/]+/)?(test_\w+\.py)`(?: \(`…(\w+)`\))?")


def claims() -> list[tuple[str, str]]:
    """Each line of the page's tables: the claim, and the tests that hold it."""
    match = SECTION.search((ROOT / "docs/security.md").read_text())
    assert match
    lines = [line.strip("|").split("|") for line in match[1].splitlines() if line[:1] == "|"]
    tables = [[cell.strip() for cell in line] for line in lines]
    return [(" ".join(line[:-1]), line[-1]) for line in tables if not re.fullmatch("-+", line[-1])]


CLAIMS = [(claim, by) for claim, by in claims() if by != "held by"]
assert len(CLAIMS) > 25


@pytest.mark.parametrize(("claim", "by"), CLAIMS)
def test_a_line_is_held_by_rows_and_tests_that_exist(claim: str, by: str) -> None:
    rows, tests = ROW.findall(by), TEST.findall(by)
    assert rows or tests, f"nothing holds: {claim}"
    assert set(rows) <= {row.name for row in ROWS}
    for name, end in tests:
        texts = [path.read_text() for path in (ROOT / "tests").rglob(name)]
        assert texts, name
        assert any(re.search(rf"def test_\w*{end}\(", text) for text in texts), f"{name}: …{end}"
