"""A lock file is for its account alone, or others could hold it; a note names the holder."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from lockstep.onhost.core import file_lock, process_liveness


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("old", [False, True])
def test_nobody_else_can_open_it_also_where_an_earlier_version_made_it(
    tmp_path: Path, old: bool
) -> None:
    path = tmp_path / "jobs/switch.lock"
    if old:
        path.parent.mkdir()
        path.touch(mode=0o644)
    umask = os.umask(0)
    try:
        with file_lock.hold_lock(path):
            assert mode(path) == 0o600
    finally:
        os.umask(umask)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch(mode=0o644)
    (tmp_path / "lock").symlink_to("theirs")
    with pytest.raises(OSError), file_lock.hold_lock(tmp_path / "lock"):
        pass
    assert mode(tmp_path / "theirs") == 0o644


def test_the_note_is_there_while_it_is_held_and_after_no_end_of_it(tmp_path: Path) -> None:
    path = tmp_path / "switch.lock"
    with file_lock.open_file(path) as file:
        with pytest.raises(KeyError), file_lock.note_holder(path, {"user": "anna"}, mode=0o644):
            # Who looks takes no lock, and whoever has one that left no note is nobody.
            assert (file_lock.holder(path) or {})["user"] == "anna"
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert mode(tmp_path / "switch.json") == 0o644
            raise KeyError
        assert file_lock.holder(path) is None
    assert list(tmp_path.iterdir()) == [path]


def test_a_note_of_one_that_was_killed_names_nobody(tmp_path: Path) -> None:
    note = tmp_path / "switch.json"
    own_pid, start = os.getpid(), process_liveness.start_ticks(os.getpid())
    # A killed process's number is given out again; test_process_liveness.py has a real end.
    for began, is_named in ((start, True), (start - 1, False)):
        note.write_text(f'{{"pid": {own_pid}, "start": {began}, "user": "anna"}}')
        assert bool(file_lock.holder(tmp_path / "switch.lock")) is is_named


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x", "start": 1}', '{"pid": null}'])
def test_a_damaged_note_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "switch.json").write_text(text)
    assert file_lock.holder(tmp_path / "switch.lock") is None
