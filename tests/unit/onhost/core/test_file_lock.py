"""A lock file is for its account alone, or others could hold it; a note names the holder."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, file_lock, process_liveness, switch_lock


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("old", [False, True])
def test_nobody_else_can_open_it_also_where_an_earlier_version_made_it(tmp_path, old):
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


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "theirs").touch(mode=0o644)
    (tmp_path / "lock").symlink_to("theirs")
    with pytest.raises(OSError), file_lock.hold_lock(tmp_path / "lock"):
        pass
    assert mode(tmp_path / "theirs") == 0o644


def test_the_note_is_there_while_it_is_held_and_after_no_end_of_it(tmp_path):
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


def test_a_note_of_one_that_was_killed_and_a_damaged_note_name_nobody(tmp_path):
    own_pid, start = os.getpid(), process_liveness.start_ticks(os.getpid())
    notes = {f'{{"pid": {own_pid}, "start": {start}, "user": "anna"}}': True}
    # A killed process's number is given out again.
    notes[f'{{"pid": {own_pid}, "start": {start - 1}, "user": "anna"}}'] = False
    notes |= dict.fromkeys(("", "[]", "{}", '{"pid": "x", "start": 1}', '{"pid": null}'), False)
    for note, is_named in notes.items():
        (tmp_path / "switch.json").write_text(note)
        assert bool(file_lock.holder(tmp_path / "switch.lock")) is is_named, note


def test_a_second_switch_is_refused_and_told_whose_the_first_is(tmp_path, monkeypatch):
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    path = tmp_path / "switch.lock"
    with switch_lock.hold_lock(path, "anna", "qwen"):
        assert (mode(path), mode(tmp_path / "switch.json")) == (0o600, 0o644)
        with (
            pytest.raises(switch_lock.SwitchUnderWay, match="anna is switching to qwen") as problem,
            switch_lock.hold_lock(path, "ben", "none"),
        ):
            pass
        assert problem.value.code == errors.EXIT_LOCKED
        # A lock that nobody may open is no obstacle for who only looks.
        path.chmod(0)
        assert (switch_lock.holder(path) or pytest.fail("nobody")).user == "anna"
    assert switch_lock.holder(path) is None
    with switch_lock.hold_lock(path, "ben", "none"):
        pass


def test_a_process_lives_until_it_ends_and_another_of_its_number_is_not_it(monkeypatch):
    running = subprocess.Popen(["sleep", "60"])
    start = process_liveness.start_ticks(running.pid)
    assert start > 0 and process_liveness.is_alive(running.pid, start)
    assert not process_liveness.is_alive(running.pid, start - 1)
    running.kill()
    running.wait()
    assert process_liveness.start_ticks(running.pid) == 0
    assert not process_liveness.is_alive(running.pid, start)
    # Of one that proc hides the number tells.
    monkeypatch.setattr(process_liveness, "start_ticks", lambda _: 0)
    for pid, is_alive in ((os.getpid(), True), (running.pid, False), (0, False), (-1, False)):
        assert process_liveness.is_alive(pid, 7) is is_alive
