"""One more entry in a literal mapping, whatever way people write one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from lockstep.authoring.binding import with_target
from lockstep.core.errors import InventoryError

LINE = '"new": {"recipe": "r", "unit": "u"},'
FORMS = (
    'targets = {\n    "a": 1,\n}\n',
    'targets = {\n    "a": 1\n}\n',
    'targets = {\n    "a": {"b": 2},  # a comment, with a comma\n    # another }\n}\nmore = 1\n',
    'targets = {\n    **{"ä": 3},\n    "ö": "ü"\n    # no comma before\n}\n',
)


@pytest.mark.parametrize("text", FORMS)
def test_an_entry_is_added_and_nothing_else_changes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    before = runpy.run_path(str(path))["targets"]
    new = with_target(path, LINE)
    assert new is not None
    path.write_text(new, encoding="utf-8")
    after = runpy.run_path(str(path))["targets"]
    assert after == {**before, "new": {"recipe": "r", "unit": "u"}}
    assert [line for line in text.splitlines() if "#" in line and line not in new] == []


@pytest.mark.parametrize(
    "text",
    [
        "targets = dict(a=1)\n",
        "targets = {}\n",
        'targets = {"a": 1}\n',
        'targets = {\n    "a": 1}\n',
        'targets = {\n    "a": 1,\n}\nspark = [("x", {"targets": {\n    "b": 2,\n}})]\n',
        "x = 1\n",
    ],
)
def test_what_is_in_doubt_is_left_to_people(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    assert with_target(path, LINE) is None


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("targets = {", encoding="utf-8")
    with pytest.raises(InventoryError, match="not valid Python"):
        with_target(path, LINE)
