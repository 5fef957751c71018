"""The host's restic repository; tests/unit/onhost/backup has what is done with it."""

import os
import subprocess
from pathlib import Path

import pytest
from a_restic import open_cheaply
from lab_servers import until

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records.restic_client import RepositoryInUse, ResticRepository

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _cheap(monkeypatch) -> None:
    open_cheaply(monkeypatch)


@pytest.fixture
def own(paths) -> ResticRepository:
    own = ResticRepository(paths)
    own.make_repository()
    return own


def test_the_policy_forgets_by_tag(tmp_path, own):
    file = tmp_path / "file"
    for number in range(3):
        file.write_text(str(number))
        own.save_snapshot([file], ["nightly", f"generation={number}"])
    own.save_snapshot([file], ["update", "generation=9"])
    own.forget_snapshots_beyond_policy("nightly", {"daily": 1, "weekly": 0})
    assert [snapshot.tag_value("generation") for snapshot in own.snapshots()] == ["9", "2"]
    # What restic says is the reason of a fault.
    with pytest.raises(errors.Problem, match=r"backup in .*backup"):
        ResticRepository(layout.Paths(tmp_path / "none")).snapshots()


def _begin_backup(own: ResticRepository) -> subprocess.Popen[bytes]:
    """Start a backup that holds the repository's lock until its standard input ends."""
    names = {"RESTIC_REPOSITORY": own.place, "RESTIC_PASSWORD_FILE": str(own.password)}
    process = subprocess.Popen(
        ["restic", "--no-cache", "backup", "--stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **names},
    )
    locks = Path(own.place) / "locks"
    until(lambda: any("tmp" not in lock.name for lock in locks.iterdir()), "its lock is there")
    return process


def test_a_repository_in_use_is_not_called_damaged_and_a_killed_backup_is_in_nobodys_way(own):
    backup = _begin_backup(own)
    with pytest.raises(RepositoryInUse, match="wait until that has ended"):
        own.verify_every_byte()
    backup.communicate(b"")
    own.verify_every_byte()
    killed_backup = _begin_backup(own)
    killed_backup.kill()
    killed_backup.communicate()
    locks = Path(own.place) / "locks"
    assert list(locks.iterdir())
    own.verify_every_byte()
    assert not list(locks.iterdir())
