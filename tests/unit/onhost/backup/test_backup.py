"""Backups by the real restic: what is lost returns, and the password is in no argument."""

import fcntl
import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from a_webui import OLD, Spark, open_cheaply, running
from lab_servers import until

from lockstep.onhost.backup import backup
from lockstep.onhost.core import errors, runner
from lockstep.onhost.records import deploy_lock, restic_client
from lockstep.onhost.webui import data_copies, update

pytestmark = pytest.mark.slow


@pytest.fixture
def spark(tmp_path, monkeypatch):
    with running(tmp_path, monkeypatch) as host:
        host.backs_up(str(tmp_path / "elsewhere/spark1"))
        host.paths.gateway_keys.parent.mkdir(parents=True, exist_ok=True)
        host.paths.gateway_keys.write_text('{"anna": 1}')
        host.chat("one")
        host.runs(OLD)

        def start_image(*_: object) -> None:
            host.begin(OLD)
            host.ready(OLD)

        # As systemd does.
        monkeypatch.setattr(update, "start_or_await_return", start_image)
        yield host


def run_backup(spark: Spark, *words: str) -> None:
    assert backup.main(list(words), spark.paths) == 0


def nightly(spark: Spark) -> restic_client.BackupSnapshot:
    return restic_client.ResticRepository(spark.paths).snapshots()[0]


def places(spark: Spark, capsys) -> list[dict[str, Any]]:
    """The listing: the host's own place, then the other one."""
    capsys.readouterr()
    run_backup(spark, "list")
    return list(json.loads(capsys.readouterr().out)["places"].values())


def test_a_lost_volume_and_lost_keys_return(spark):
    run_backup(spark, "now")
    (spark.place / "webui.db").unlink()
    spark.paths.gateway_keys.unlink()
    spark.chat("of a new volume")
    run_backup(spark, "restore", nightly(spark).id[:8])
    assert spark.chats == ["one"]
    assert spark.paths.gateway_keys.read_text() == '{"anna": 1}'
    # What was there meanwhile is kept as before an update.
    snapshot = data_copies.complete_copies(spark.paths)[0]
    data_copies.restore_copy(spark.paths, spark.place, snapshot.number)
    assert spark.chats == ["of a new volume"]


def test_a_wiped_host_returns_from_another_place_with_its_password(spark):
    run_backup(spark, "now")
    nightly_backup = nightly(spark)
    shutil.rmtree(spark.paths.backup_kept)
    (spark.place / "webui.db").unlink()
    spark.chat("of a new volume")
    elsewhere = json.loads(spark.paths.backup.read_text())["to"][0]
    restic_client.ResticRepository(spark.paths).make_repository()
    saved_backup = restic_client.ResticRepository(spark.paths, elsewhere).snapshots()[0]
    assert saved_backup.at == nightly_backup.at and saved_backup.tag_value("image") == OLD
    run_backup(spark, "restore", saved_backup.id[:8], "--from", elsewhere)
    assert spark.chats == ["one"]


def test_every_place_is_listed_with_what_the_timer_and_people_made_and_is_whole(spark, capsys):
    run_backup(spark, "now")
    run_backup(spark, "check")
    output = capsys.readouterr().out
    assert output.count(": whole") == 2
    # Both places are on the disk of this test.
    assert "lies on the disk of what it is a backup of" in output
    elsewhere = restic_client.ResticRepository(spark.paths, "sftp:ann@nas.local:/sparks/spark1")
    assert not elsewhere.is_on_host_disk
    spark.chat("two", at=4e9)
    for place in places(spark, capsys):
        (manual,) = [snapshot for snapshot in place["snapshots"] if snapshot["why"] == "by hand"]
        assert manual["image"] == OLD and manual["chats_since"] == 1
    run_backup(spark, "now", "--nightly")
    # One of a day stays, whichever made it; the copy of before an update is none of them.
    reasons = [snapshot["why"] for snapshot in places(spark, capsys)[0]["snapshots"]]
    assert reasons == ["nightly", "update"]


def test_a_new_host_says_that_it_has_no_backup_yet_and_what_its_old_ones_need(spark, capsys):
    """Also one that was wiped: the other place has them still."""
    # Nothing came there before the first night.
    assert places(spark, capsys)[1]["none_yet"]
    run_backup(spark, "now")
    assert all(place["snapshots"] for place in places(spark, capsys))
    shutil.rmtree(spark.paths.backup_kept)
    (spark.paths.secrets / "backup.key").unlink()
    own, other_place = places(spark, capsys)
    assert own["none_yet"] and "fault" not in own
    message = "this host has no password of a backup; the first backup makes one"
    assert message in other_place["fault"]
    assert "message_type" not in other_place["fault"]


def test_a_damaged_repository_is_neither_whole_nor_backed_up_to(spark):
    # More than the folders take, so that its pack is the largest.
    spark.paths.gateway_keys.write_text(secrets.token_hex(50_000))
    run_backup(spark, "now")
    packs = [path for path in (spark.paths.backup_kept / "data").rglob("*") if path.is_file()]
    pack = max(packs, key=lambda path: path.stat().st_size)
    pack.chmod(0o600)
    content = bytearray(pack.read_bytes())
    content[40] ^= 0xFF
    pack.write_bytes(content)
    with pytest.raises(errors.Problem, match=str(spark.paths.backup_kept)):
        backup.main(["check"], spark.paths)
    with pytest.raises(errors.Problem, match=r"can be trusted.*Remedy: move .*/backup away"):
        backup.main(["now"], spark.paths)


def test_a_backup_that_cannot_be_read_puts_nothing_back(spark, monkeypatch):
    run_backup(spark, "now")
    earlier_keys = spark.paths.gateway_keys.read_bytes()

    def fail_to_unpack(*_: object) -> None:
        raise errors.Problem("ciphertext verification failed")

    # restic 0.14 tries a damaged pack again for minutes.
    monkeypatch.setattr(restic_client.ResticRepository, "restore_snapshot", fail_to_unpack)
    with pytest.raises(errors.Problem, match=r"failed\. Nothing was put back\. Remedy: another"):
        backup.main(["restore", nightly(spark).id], spark.paths)
    assert spark.paths.gateway_keys.read_bytes() == earlier_keys


def test_a_place_that_fails_leaves_the_hosts_own_and_no_success(spark):
    (spark.paths.root.parent / "elsewhere").write_text("no folder")
    with pytest.raises(errors.Problem, match="elsewhere"):
        backup.main(["now"], spark.paths)
    assert nightly(spark)
    assert not spark.paths.backup_record.exists()


def test_the_password_is_in_no_argument_and_no_backup_and_a_lost_one_is_not_replaced(
    spark, monkeypatch
):
    words: list[str] = []
    run = runner.run

    def record_run(argv, *arguments, **more):
        words.extend([*argv, *(more.get("env") or {}).values()])
        return run(argv, *arguments, **more)

    monkeypatch.setattr(runner, "run", record_run)
    run_backup(spark, "now")
    key = spark.paths.secrets / "backup.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert words and not any(key.read_text().strip() in word for word in words)
    target_path = spark.paths.root / "unpacked"
    restic_client.ResticRepository(spark.paths).restore_snapshot(nightly(spark).id, target_path)
    assert not list(target_path.rglob("backup.key"))
    key.unlink()
    # Another one would open nothing.
    with pytest.raises(errors.Problem, match="made with another password"):
        backup.main(["now"], spark.paths)
    assert not key.exists()


def test_without_the_inventorys_word_there_is_none(spark):
    spark.paths.backup.unlink()
    with pytest.raises(errors.Problem, match=r"backup\.enabled"):
        backup.main(["now"], spark.paths)


def test_a_restore_and_a_deploy_keep_away_from_each_other(spark, monkeypatch):
    lock = spark.paths.deploy_lock
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(errors.Problem, match="wait for its end"):
            backup.main(["restore", "0123"], spark.paths)
    holders: list[object] = []
    monkeypatch.setattr(backup, "restore", lambda *_: holders.append(deploy_lock.lock_holder(lock)))
    run_backup(spark, "restore", "0123")
    assert "restore of a backup" in str(holders[0])
    assert deploy_lock.lock_holder(lock) is None


@pytest.fixture
def own(paths, monkeypatch) -> restic_client.ResticRepository:
    open_cheaply(monkeypatch)
    own = restic_client.ResticRepository(paths)
    own.make_repository()
    return own


def _begin_backup(own: restic_client.ResticRepository) -> subprocess.Popen[bytes]:
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
    with pytest.raises(restic_client.RepositoryInUse, match="wait until that has ended"):
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
