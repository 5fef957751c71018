"""The lines in which an inventory sets a key, down to the part of a value that a fault names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.inventory import lines

INVENTORY = """\
_q = {"recipe": "a"}
site = [
    ("one", {
        "models": {
            "q": {
                **_q,
                "port": 99,
            },
            "r": _q,
        },
        "webui": {
            "prot": 1,
        },
    }),
    ("two", {"webui": {}}),
]
"""
GROUP_DATA = 'models = {}\nmodels = {\n    "q": {"recipe": "a",\n          "port": 99},\n}\n'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "site.py"
    path.write_text(INVENTORY)
    return path


def test_a_key_is_looked_for_with_its_host_first(source: Path) -> None:
    assert lines.line_of_key(source, "one", "webui") == 11
    assert lines.line_of_key(source, "two", "webui") == 15
    # Set for one host only, it can be no other line.
    assert lines.line_of_key(source, "two", "models") == 4
    assert lines.line_of_key(source, "three", "webui") is None


@pytest.mark.parametrize(
    ("line", "fault", "expected_line"),
    [
        (4, "models.q.port is not a port", 7),
        (4, "models.q.scripts[0] needs a full path", 5),
        (4, "models.r.port is not a port", 9),
        (4, "models.gone.port is not a port", 4),
        (11, "unknown key 'prot' in webui", 12),
        (11, "'webui' comes after `checked(…)`", 11),
    ],
)
def test_a_part_stands_where_its_mapping_is_written_out(
    source: Path, line: int, fault: str, expected_line: int
) -> None:
    assert lines.line_of_part(source, line, fault) == expected_line


def test_of_group_data_the_last_value_counts(tmp_path: Path) -> None:
    path = tmp_path / "all.py"
    path.write_text(GROUP_DATA)
    assert lines.line_of_name(path, "models") == 2
    assert lines.line_of_name(path, "webui") is None
    assert lines.line_of_part(path, 2, "models.q.port is not a port") == 4
