"""One switch at a time; who looks who it is takes nothing, and needs no right."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, switch_lock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_one_is_refused_and_told_whose_the_first_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    path = tmp_path / "switch.lock"
    with (
        switch_lock.hold_lock(path, "anna", "qwen"),
        pytest.raises(switch_lock.SwitchUnderWay, match="anna is switching to qwen") as problem,
        switch_lock.hold_lock(path, "ben", "none"),
    ):
        pass
    assert problem.value.code == errors.EXIT_LOCKED
    with switch_lock.hold_lock(path, "ben", "none"):
        pass


def test_the_lock_is_for_its_account_alone_and_the_note_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "switch.lock"
    path.touch(mode=0o644)
    with switch_lock.hold_lock(path, "anna", "qwen"):
        assert mode(path) == 0o600
        assert mode(tmp_path / "switch.json") == 0o644
        # A lock that nobody may open is no obstacle for who only looks.
        path.chmod(0)
        assert (switch_lock.holder(path) or pytest.fail("nobody")).user == "anna"
    assert switch_lock.holder(path) is None
