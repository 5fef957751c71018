"""One more entry in a literal mapping, whatever way people write one."""

import runpy
from pathlib import Path

import pytest

from lockstep.authoring.binding import with_model
from lockstep.core.errors import InventoryError

LINE = '"new": {"recipe": "r", "unit": "u"},'
FORMS = (
    'models = {\n    "a": 1,\n}\n',
    'models = {\n    "a": {"b": 2},  # a comment, with a comma\n    # another }\n}\nmore = 1\n',
    'models = {\n    **{"ä": 3},\n    "ö": "ü"\n    # no comma before\n}\n',
)


@pytest.mark.parametrize("text", FORMS)
def test_an_entry_is_added_and_nothing_else_changes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    earlier_models = runpy.run_path(str(path))["models"]
    new = with_model(path, LINE)
    assert new is not None
    path.write_text(new, encoding="utf-8")
    later_models = runpy.run_path(str(path))["models"]
    assert later_models == {**earlier_models, "new": {"recipe": "r", "unit": "u"}}
    assert [line for line in text.splitlines() if "#" in line and line not in new] == []


@pytest.mark.parametrize(
    "text",
    [
        "models = dict(a=1)\n",
        'models = {"a": 1}\n',
        'models = {\n    "a": 1}\n',
        'models = {\n    "a": 1,\n}\nspark = [("x", {"models": {\n    "b": 2,\n}})]\n',
        "x = 1\n",
    ],
)
def test_what_is_in_doubt_is_left_to_people(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(text, encoding="utf-8")
    assert with_model(path, LINE) is None


def test_a_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("models = {", encoding="utf-8")
    with pytest.raises(InventoryError, match="not valid Python"):
        with_model(path, LINE)
