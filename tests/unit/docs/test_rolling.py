"""docs/rolling.md says in a few words what comes back, and what does not as the journal has it."""

from __future__ import annotations

import re
from pathlib import Path

from lockstep.deploy.closing import STAYING_BY_OPERATION
from lockstep.deploy.course import REREAD
from lockstep.onhost.records.rollback_journal import STAYING

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/rolling.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## What comes back\n")[2].partition("\n## ")[0]


def test_it_is_short() -> None:
    assert 100 < len([word for word in SECTION.split() if re.search(r"\w", word)]) < 300


def test_what_does_not_return_is_what_the_journal_says() -> None:
    table = SECTION.partition("| does not return | |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| {kind} | {then} |" for kind, then in STAYING.items()]


def test_operations_whose_changes_stay_are_those_of_the_deploy() -> None:
    tasks = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tasks").glob("*.py"))
    names = {*re.findall(r'name=f?"([^":]+)', tasks), REREAD}
    assert set(STAYING_BY_OPERATION) - names == set()
    assert set(STAYING_BY_OPERATION.values()) == set(STAYING), "--dry names every kind"
