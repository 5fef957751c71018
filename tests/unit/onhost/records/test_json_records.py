"""Records of state: written, read, damaged, and of another version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from lockstep.onhost.core import errors
from lockstep.onhost.records import json_records


@dataclass(frozen=True)
class Note:
    """One note in a record."""

    reason: str
    at: float = 0.0


@dataclass(frozen=True)
class Notes:
    """A record with notes."""

    notes: tuple[Note, ...] = ()
    groups: dict[str, list[str] | None] | None = None


RECORD = Notes((Note("two\nlines", 1.5),), {"docker": ["anna"], "none": None})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/record.json"


def test_what_was_saved_is_read(path: Path) -> None:
    json_records.save(path, RECORD, mode=0o600)
    assert json_records.load(Notes, path) == RECORD
    assert path.stat().st_mode & 0o777 == 0o600


def test_keys_of_a_newer_version_are_ignored(path: Path) -> None:
    json_records.save(path, RECORD)
    path.write_text(json.dumps({**asdict(RECORD), "newer": 1}))
    assert json_records.load(Notes, path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", '{"notes": [{"at": 1}]}', '{"notes": "x"}'])
def test_a_damaged_record_counts_as_missing_or_is_refused(path: Path, text: str) -> None:
    assert json_records.load(Notes, path) is None
    assert json_records.load_or_refuse(Notes, path, "remove it") is None
    path.parent.mkdir()
    path.write_text(text)
    assert json_records.load(Notes, path) is None
    with pytest.raises(errors.Problem, match=r"record\.json: .+\. Remedy: remove it$"):
        json_records.load_or_refuse(Notes, path, "remove it")


def test_a_record_of_another_version_is_called_so(path: Path) -> None:
    with pytest.raises(ValueError, match="another version of Lockstep"):
        json_records.record_of_text(Notes, '{"newer": 1}')
