"""An update of Open WebUI: data are copied, proved, returned, and nothing is lost on the way."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from a_webui import NEW, OLD, VOLUME, Spark, running, text
from onhost_fakes import let_listen

from lockstep.onhost.core import errors, runner
from lockstep.onhost.records import restic_client
from lockstep.onhost.webui import data, data_copies, update


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spark]:
    with running(tmp_path, monkeypatch) as running_spark:
        yield running_spark


@pytest.fixture
def serving_spark(spark: Spark) -> Spark:
    """A Spark with one chat, and the old image that has served it."""
    spark.chat("one")
    spark.runs(OLD)
    return spark


def numbers(spark: Spark) -> list[int]:
    return [snapshot.number for snapshot in data_copies.complete_copies(spark.paths)]


def test_the_same_image_has_nothing_copied(serving_spark: Spark) -> None:
    earlier_numbers = numbers(serving_spark)
    serving_spark.runs(OLD)
    assert numbers(serving_spark) == earlier_numbers


def test_a_record_of_an_earlier_version_is_called_so_and_may_be_removed(
    serving_spark: Spark,
) -> None:
    path = serving_spark.paths.webui
    path.write_text(path.read_text().replace("wanted_copy", "wanted"))
    with pytest.raises(errors.Problem) as refusal:
        serving_spark.runs(NEW)
    assert str(refusal.value) == (
        f"{path}: a record of another version of Lockstep, which is not carried over. "
        "Remedy: remove it, and it is written anew"
    )
    path.unlink()
    earlier_numbers = numbers(serving_spark)
    serving_spark.runs(NEW)
    # Without a record, the data are copied before an image opens them.
    assert serving_spark.chats == ["one"] and len(numbers(serving_spark)) > len(earlier_numbers)


def test_a_first_start_without_data_has_nothing_copied(spark: Spark) -> None:
    spark.begin(OLD)
    assert numbers(spark) == []


def test_an_update_that_serves_keeps_a_copy_of_before(serving_spark: Spark) -> None:
    serving_spark.runs(NEW)
    serving_spark.chat("two")
    newest = data_copies.complete_copies(serving_spark.paths)[0]
    assert newest.image == OLD
    assert data_copies.load(serving_spark.paths).image == NEW
    with closing(
        sqlite3.connect(
            data_copies.copied_data_folder(serving_spark.paths, newest.number) / "webui.db"
        )
    ) as db:
        assert db.execute("SELECT title FROM chat").fetchall() == [("one",)]


def test_an_update_that_fails_returns_unit_and_data(serving_spark: Spark) -> None:
    serving_spark.fails(NEW)
    assert serving_spark.unit.read_text() == text(OLD)
    serving_spark.begin(OLD)
    assert serving_spark.chats == ["one"]
    serving_spark.ready(OLD)
    webui_record = data_copies.load(serving_spark.paths)
    assert (webui_record.image, webui_record.update) == (OLD, None)
    assert "is back, with its data" in webui_record.last


def test_a_return_that_was_cut_off_before_the_unit_is_finished_by_the_next_start(
    serving_spark: Spark,
) -> None:
    serving_spark.fails(NEW)
    serving_spark.unit.write_text(text(NEW))
    with pytest.raises(errors.Problem, match="is back"):
        serving_spark.begin(NEW)
    assert (serving_spark.unit.read_text(), serving_spark.chats) == (text(OLD), ["one"])


@pytest.mark.parametrize("moment", ["copied", "data.old", "nothing there"])
def test_a_return_that_was_cut_off_while_data_were_put_back_is_done_again(
    serving_spark: Spark, moment: str
) -> None:
    serving_spark.fails(NEW)
    new, old = (serving_spark.place.with_name(f"_data.{word}") for word in ("new", "old"))
    if moment == "copied":
        (new / "half").mkdir(parents=True)
    else:
        serving_spark.place.rename(old)
        if moment == "data.old":
            new.mkdir()
    serving_spark.begin(OLD)
    assert serving_spark.chats == ["one"]
    assert not new.exists() and not old.exists()


def test_an_update_that_was_stopped_on_purpose_goes_on(serving_spark: Spark) -> None:
    serving_spark.begin(NEW)
    serving_spark.end("success")
    serving_spark.runs(NEW)
    assert data_copies.load(serving_spark.paths).image == NEW
    assert len(numbers(serving_spark)) == 2


def test_a_third_image_begins_with_the_data_of_before_the_one_that_never_served(
    serving_spark: Spark,
) -> None:
    serving_spark.begin(NEW)
    serving_spark.chat("half a migration")
    serving_spark.end("success")
    serving_spark.runs("i@sha256:3")
    assert serving_spark.chats == ["one"]


def test_a_broken_database_is_no_start(serving_spark: Spark) -> None:
    serving_spark.begin(NEW)
    (serving_spark.place / "webui.db").write_bytes(b"SQLite format 3\0" + bytes(4096))
    with pytest.raises(errors.Problem, match="database is broken"):
        serving_spark.ready(NEW)
    assert data_copies.load(serving_spark.paths).image == OLD


def test_without_room_for_the_copy_the_old_image_stays(
    serving_spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving_spark.unit.write_text(text(NEW))

    def full(*_: object, **__: object) -> None:
        raise errors.Problem("No space left on device")

    monkeypatch.setattr(data, "copy_folder", full)
    with pytest.raises(errors.Problem, match="No space left"):
        serving_spark.begin(NEW)
    assert (serving_spark.unit.read_text(), serving_spark.chats) == (text(OLD), ["one"])
    serving_spark.ready(OLD)


def test_a_rollback_begins_with_its_copy_and_keeps_what_there_was(spark: Spark) -> None:
    spark.chat("one", at=1)
    spark.runs(OLD)
    spark.runs(NEW)
    spark.chat("two", at=2**40)
    listing = update.copies_with_later_chats(spark.paths, VOLUME)
    assert listing["image"] == NEW
    fits = next(
        snapshot for snapshot in data_copies.complete_copies(spark.paths) if snapshot.image == OLD
    )
    assert data.count_chats_since(spark.place, fits.at) == 1
    update.select_copy_for_image(spark.paths, OLD, fits.number)
    spark.runs(OLD)
    assert spark.chats == ["one"]
    newest = data_copies.complete_copies(spark.paths)[0]
    assert newest.image == NEW
    with closing(
        sqlite3.connect(data_copies.copied_data_folder(spark.paths, newest.number) / "webui.db")
    ) as db:
        assert db.execute("SELECT count(*) FROM chat").fetchone() == (2,)


def test_a_copy_that_was_asked_for_long_ago_is_not_used(
    serving_spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving_spark.runs(NEW)
    serving_spark.chat("two")
    update.select_copy_for_image(serving_spark.paths, OLD, numbers(serving_spark)[0])
    later = data_copies.load(serving_spark.paths).wanted_copy
    assert later
    monkeypatch.setattr(update.time, "time", lambda: later.until + 1)
    serving_spark.runs(OLD)
    assert serving_spark.chats == ["one", "two"]


def test_a_rollback_whose_image_fails_returns_the_newer_data(serving_spark: Spark) -> None:
    serving_spark.runs(NEW)
    serving_spark.chat("two")
    update.select_copy_for_image(serving_spark.paths, OLD, numbers(serving_spark)[0])
    serving_spark.fails(OLD)
    serving_spark.begin(NEW)
    assert serving_spark.chats == ["one", "two"]


def test_only_the_newest_copies_stay(spark: Spark) -> None:
    spark.chat("one")
    for number in range(data_copies.KEPT + 3):
        spark.runs(f"i@sha256:{number}")
    assert len(numbers(spark)) == data_copies.KEPT


def test_a_live_copy_of_a_database_has_what_is_in_its_log(spark: Spark, tmp_path: Path) -> None:
    with closing(sqlite3.connect(spark.place / "webui.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE chat (title TEXT)")
        db.execute("INSERT INTO chat VALUES ('in the log')")
        db.commit()
        data.copy_folder(spark.place, tmp_path / "copy", live=True)
    with closing(sqlite3.connect(tmp_path / "copy/webui.db")) as db:
        assert db.execute("SELECT title FROM chat").fetchall() == [("in the log",)]


def cp_says(monkeypatch: pytest.MonkeyPatch, *fault_texts: str) -> list[list[str]]:
    """Let cp copy, then fail with each of these messages in turn; returns each call's words."""
    run, calls = runner.run, list[list[str]]()

    def run_command(argv: Sequence[str], **options: Any) -> Any:
        result = run(argv, **options)
        if argv[0] == "cp" and len(calls) < len(fault_texts):
            calls.append(list(argv))
            return subprocess.CompletedProcess(argv, 1, result.stdout, fault_texts[len(calls) - 1])
        return result

    monkeypatch.setattr(runner, "run", run_command)
    return calls


GONE = "cp: cannot stat '/v/_data/cache/1.tmp': No such file or directory\n"
REPLACED = "cp: skipping file '/v/_data/a', as it was replaced while being copied\n"
WRONG = [
    "cp: error reading '/v/_data/uploads/a.pdf': Input/output error\n",
    "cp: error writing '/s/data/uploads/a.pdf': No space left on device\n",
    "cp: cannot open '/v/_data/uploads/a.pdf' for reading: Permission denied\n",
    "cp: cannot create regular file '/s/data/a': No such file or directory\n",
    "",
]


def test_a_file_that_vanished_is_no_fault_of_a_live_copy(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cp_says(monkeypatch, GONE + GONE.replace("stat", "open").replace("': ", "' for reading: "))
    data.copy_folder(spark.place, tmp_path / "copy", live=True)
    cp_says(monkeypatch, GONE)
    with pytest.raises(errors.Problem, match="cannot be copied"):
        data.copy_folder(spark.place, tmp_path / "still", live=False)


@pytest.mark.parametrize("wrong", WRONG)
def test_any_other_fault_of_a_live_copy_ends_it(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    for fault_text in (wrong, wrong and GONE + wrong):
        cp_says(monkeypatch, fault_text)
        with pytest.raises(errors.Problem, match="cannot be copied"):
            data.copy_folder(spark.place, tmp_path / "copy", live=True)


def test_a_file_that_was_replaced_while_it_was_copied_is_copied_again(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cp_says(monkeypatch, REPLACED)
    data.copy_folder(spark.place, tmp_path / "copy", live=True)
    cp_says(monkeypatch, *(REPLACED, GONE + REPLACED, REPLACED))
    with pytest.raises(errors.Problem, match="replaced while"):
        data.copy_folder(spark.place, tmp_path / "copy", live=True)


def test_with_backups_the_copy_of_before_is_in_the_backup_alone(spark: Spark) -> None:
    spark.backs_up()
    spark.chat("one")
    spark.runs(OLD)
    spark.runs(NEW)
    spark.chat("two")
    newest = data_copies.complete_copies(spark.paths)[0]
    assert newest.backup and newest.image == OLD
    assert not data_copies.copied_data_folder(spark.paths, newest.number).exists()
    update.select_copy_for_image(spark.paths, OLD, newest.number)
    spark.runs(OLD)
    assert spark.chats == ["one"]


def test_with_backups_an_update_that_fails_returns_unit_and_data(spark: Spark) -> None:
    spark.backs_up()
    spark.chat("one")
    spark.runs(OLD)
    spark.fails(NEW)
    spark.begin(OLD)
    assert spark.chats == ["one"]
    assert not list(spark.paths.webui_kept.glob("*/data"))


def test_copies_in_the_backup_are_forgotten_as_plain_ones_are(spark: Spark) -> None:
    spark.backs_up()
    spark.chat("one")
    for image in (OLD, NEW, OLD, NEW, OLD):
        spark.runs(image)
    snapshots = data_copies.complete_copies(spark.paths)
    backup_snapshots = restic_client.ResticRepository(spark.paths).snapshots()
    assert [snapshot.backup for snapshot in snapshots] == [
        snapshot.id[:8] for snapshot in backup_snapshots
    ]
    assert len(backup_snapshots) == data_copies.KEPT


def test_backups_that_are_no_longer_wanted_still_return(spark: Spark) -> None:
    spark.backs_up()
    spark.chat("one")
    spark.runs(OLD)
    spark.unit.write_text(text(NEW))
    spark.begin(NEW)
    spark.chat("half")
    spark.paths.backup.unlink()
    spark.end("exit-code")
    spark.begin(OLD)
    assert spark.chats == ["one"]


def test_it_does_not_start_where_anybody_listens_at_its_port(spark: Spark) -> None:
    url = "http://127.0.0.1:8080"
    update.refuse_taken_port(spark.paths, url)
    let_listen(spark.paths, 7, "/user.slice/session-3.scope", port=8080)
    message = r"python3 \(process 7 of root\) listens at 127.0.0.1:8080, .* Remedy: stop it"
    with pytest.raises(errors.Problem, match=message):
        update.refuse_taken_port(spark.paths, url)


@pytest.mark.parametrize("group", ["/user.slice/session-3.scope", "/system.slice/docker-2.scope"])
def test_an_answer_of_another_process_than_its_container_is_none(spark: Spark, group: str) -> None:
    port = int(spark.url.rpartition(":")[2])
    let_listen(spark.paths, 7, group, port=port)
    with pytest.raises(errors.Problem, match="process 7 of root"):
        spark.runs(OLD)
    assert data_copies.load(spark.paths).image == ""


def test_the_answer_of_its_own_container_counts(spark: Spark) -> None:
    port = int(spark.url.rpartition(":")[2])
    let_listen(spark.paths, 7, "/system.slice/docker-open-webui.scope", port=port)
    spark.chat("one")
    spark.runs(OLD)
    assert data_copies.load(spark.paths).image == OLD
