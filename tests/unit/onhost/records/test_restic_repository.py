"""The host's restic repository; tests/unit/onhost/backup has what is done with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from a_restic import open_cheaply
from lab_servers import until

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records.restic_repository import ResticRepository

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    open_cheaply(monkeypatch)


def test_the_policy_forgets_by_tag(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    own = ResticRepository(paths)
    own.make_repository()
    file = tmp_path / "file"
    for number in range(3):
        file.write_text(str(number))
        own.save_snapshot([file], ["nightly", f"generation={number}"])
    own.save_snapshot([file], ["update", "generation=9"])
    own.forget_snapshots_beyond_policy("nightly", {"daily": 1, "weekly": 0})
    assert [snapshot.tag("generation") for snapshot in own.snapshots()] == ["9", "2"]


def test_what_restic_says_is_the_reason(tmp_path: Path) -> None:
    with pytest.raises(errors.Problem, match=r"backup in .*backup"):
        ResticRepository(layout.Paths(tmp_path)).snapshots()


def test_the_lock_of_a_killed_backup_is_in_nobodys_way(tmp_path: Path) -> None:
    own = ResticRepository(layout.Paths(tmp_path))
    own.make_repository()
    names = {"RESTIC_REPOSITORY": own.place, "RESTIC_PASSWORD_FILE": str(own.password)}
    killed_backup = subprocess.Popen(
        ["restic", "--no-cache", "backup", "--stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **names},
    )
    locks = Path(own.place) / "locks"
    until(lambda: any("tmp" not in lock.name for lock in locks.iterdir()), "its lock is there")
    killed_backup.kill()
    killed_backup.communicate()
    assert list(locks.iterdir())
    own.make_repository()
    assert not list(locks.iterdir())
