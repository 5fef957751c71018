"""An update of Open WebUI: data are copied, proved, returned, and nothing is lost on the way."""

import sqlite3
import subprocess
from contextlib import closing, nullcontext
from unittest.mock import Mock

import pytest
from a_webui import NEW, OLD, VOLUME, Spark, running, text
from onhost_fakes import let_listen

from lockstep.onhost.core import errors, runner
from lockstep.onhost.records import restic_client
from lockstep.onhost.webui import data, data_copies, update

WITH_AND_WITHOUT_BACKUPS = pytest.mark.parametrize(
    "has_backups", [False, True], ids=["plain copies", "copies in the backup"]
)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    with running(tmp_path, monkeypatch) as running_spark:
        yield running_spark


@pytest.fixture
def serving_spark(spark) -> Spark:
    """A Spark with one chat, and the old image that has served it."""
    return serve_one_chat(spark, has_backups=False)


def serve_one_chat(spark: Spark, has_backups: bool) -> Spark:
    if has_backups:
        spark.backs_up()
    spark.chat("one", at=1)
    spark.runs(OLD)
    return spark


def numbers(spark: Spark) -> list[int]:
    return [copy.number for copy in data_copies.complete_copies(spark.paths)]


def test_nothing_is_copied_without_data_or_for_the_same_image(spark):
    spark.begin(OLD)
    assert numbers(spark) == []
    serve_one_chat(spark, has_backups=False)
    earlier_numbers = numbers(spark)
    spark.runs(OLD)
    assert numbers(spark) == earlier_numbers


def test_a_record_of_an_earlier_version_is_called_so_and_may_be_removed(serving_spark):
    path = serving_spark.paths.webui
    path.write_text(path.read_text().replace("wanted_copy", "wanted"))
    with pytest.raises(errors.Problem, match=r"webui.*another version of .* Remedy: remove it"):
        serving_spark.runs(NEW)
    path.unlink()
    earlier_numbers = numbers(serving_spark)
    serving_spark.runs(NEW)
    # Without a record, the data are copied before an image opens them.
    assert serving_spark.chats == ["one"] and len(numbers(serving_spark)) > len(earlier_numbers)


@WITH_AND_WITHOUT_BACKUPS
def test_an_update_that_fails_returns_unit_and_data_also_where_the_return_was_cut_off(
    spark, has_backups
):
    serve_one_chat(spark, has_backups)
    spark.fails(NEW)
    assert spark.unit.read_text() == text(OLD)
    # As if it had been cut off before the unit.
    spark.unit.write_text(text(NEW))
    with pytest.raises(errors.Problem, match="is back"):
        spark.begin(NEW)
    assert (spark.unit.read_text(), spark.chats) == (text(OLD), ["one"])
    spark.begin(OLD)
    spark.ready(OLD)
    webui_record = data_copies.load(spark.paths)
    assert (webui_record.image, webui_record.update) == (OLD, None)
    assert "is back, with its data" in webui_record.last
    assert not has_backups or not list(spark.paths.webui_kept.glob("*/data"))


@pytest.mark.parametrize("moment", ["copied", "data.old", "nothing there"])
def test_a_return_that_was_cut_off_while_data_were_put_back_is_done_again(serving_spark, moment):
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


def test_an_update_that_was_stopped_on_purpose_goes_on_and_another_begins_with_the_data_of_before(
    serving_spark,
):
    serving_spark.begin(NEW)
    serving_spark.end("success")
    serving_spark.runs(NEW)
    assert data_copies.load(serving_spark.paths).image == NEW
    assert len(numbers(serving_spark)) == 2
    serving_spark.begin("i@sha256:3")
    serving_spark.chat("half a migration of what never served")
    serving_spark.end("success")
    serving_spark.runs("i@sha256:4")
    assert serving_spark.chats == ["one"]


def test_a_broken_database_is_no_start(serving_spark):
    serving_spark.begin(NEW)
    (serving_spark.place / "webui.db").write_bytes(b"SQLite format 3\0" + bytes(4096))
    with pytest.raises(errors.Problem, match="database is broken"):
        serving_spark.ready(NEW)
    assert data_copies.load(serving_spark.paths).image == OLD


def test_without_room_for_the_copy_the_old_image_stays(serving_spark, monkeypatch):
    serving_spark.unit.write_text(text(NEW))
    monkeypatch.setattr(data, "copy_folder", Mock(side_effect=errors.Problem("No space left")))
    with pytest.raises(errors.Problem, match="No space left"):
        serving_spark.begin(NEW)
    assert (serving_spark.unit.read_text(), serving_spark.chats) == (text(OLD), ["one"])
    serving_spark.ready(OLD)


@WITH_AND_WITHOUT_BACKUPS
def test_a_rollback_begins_with_the_copy_of_before_and_keeps_what_there_was(spark, has_backups):
    serve_one_chat(spark, has_backups)
    spark.runs(NEW)
    spark.chat("two", at=2**40)
    assert update.copies_with_later_chats(spark.paths, VOLUME)["image"] == NEW
    earlier_copy = data_copies.complete_copies(spark.paths)[0]
    assert (earlier_copy.image, bool(earlier_copy.backup)) == (OLD, has_backups)
    folder = data_copies.copied_data_folder(spark.paths, earlier_copy.number)
    assert folder.exists() is not has_backups
    assert data.count_chats_since(spark.place, earlier_copy.at) == 1
    update.select_copy_for_image(spark.paths, OLD, earlier_copy.number)
    spark.runs(OLD)
    assert spark.chats == ["one"]
    newest = data_copies.complete_copies(spark.paths)[0]
    assert newest.image == NEW
    data_copies.restore_copy(spark.paths, spark.place, newest.number)
    assert spark.chats == ["one", "two"]


@pytest.mark.parametrize("way", ["asked for long ago", "its image fails"])
def test_a_rollback_that_does_not_come_about_leaves_the_newer_data(serving_spark, monkeypatch, way):
    serving_spark.runs(NEW)
    serving_spark.chat("two")
    update.select_copy_for_image(serving_spark.paths, OLD, numbers(serving_spark)[0])
    if way == "its image fails":
        serving_spark.fails(OLD)
        serving_spark.begin(NEW)
    else:
        later = data_copies.load(serving_spark.paths).wanted_copy.until + 1
        monkeypatch.setattr(update.time, "time", lambda: later)
        serving_spark.runs(OLD)
    assert serving_spark.chats == ["one", "two"]


@WITH_AND_WITHOUT_BACKUPS
def test_only_the_newest_copies_stay(spark, has_backups):
    serve_one_chat(spark, has_backups)
    for number in range(data_copies.KEPT + 2):
        spark.runs(f"i@sha256:{number}")
    snapshots = data_copies.complete_copies(spark.paths)
    assert len(snapshots) == data_copies.KEPT
    if has_backups:
        in_backup = restic_client.ResticRepository(spark.paths).snapshots()
        assert [copy.backup for copy in snapshots] == [snapshot.id[:8] for snapshot in in_backup]


def test_a_live_copy_of_a_database_has_what_is_in_its_log(spark, tmp_path):
    with closing(sqlite3.connect(spark.place / "webui.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE chat (title TEXT)")
        db.execute("INSERT INTO chat VALUES ('in the log')")
        db.commit()
        data.copy_folder(spark.place, tmp_path / "copy", live=True)
    with closing(sqlite3.connect(tmp_path / "copy/webui.db")) as db:
        assert db.execute("SELECT title FROM chat").fetchall() == [("in the log",)]


GONE = (
    "cp: cannot stat '/v/_data/cache/1.tmp': No such file or directory\n"
    "cp: cannot open '/v/_data/cache/2.tmp' for reading: No such file or directory\n"
)
REPLACED = "cp: skipping file '/v/_data/a', as it was replaced while being copied\n"
UNREADABLE = "cp: error reading '/v/_data/uploads/a.pdf': Input/output error\n"


@pytest.mark.parametrize(
    ("is_live", "fault_texts", "problem"),
    [
        (True, [GONE], None),
        (False, [GONE], "cannot be copied"),
        (True, [GONE + UNREADABLE], "cannot be copied"),
        (True, ["cp: cannot open '/v/a' for reading: Permission denied\n"], "cannot be copied"),
        (True, ["cp: cannot create regular file '/s/a': No such file or directory\n"], "be copied"),
        (True, [""], "cannot be copied"),
        # It is copied again.
        (True, [REPLACED], None),
        (True, [REPLACED, GONE + REPLACED, REPLACED], "replaced while"),
    ],
)
def test_files_may_vanish_or_be_replaced_under_a_live_copy_and_any_other_fault_ends_it(
    spark, tmp_path, monkeypatch, is_live, fault_texts, problem
):
    run, messages = runner.run, iter(fault_texts)

    def run_command(argv, **options):
        """Let cp copy, then fail with each of these messages in turn."""
        result = run(argv, **options)
        message = next(messages, None) if argv[0] == "cp" else None
        if message is None:
            return result
        return subprocess.CompletedProcess(argv, 1, result.stdout, message)

    monkeypatch.setattr(runner, "run", run_command)
    with pytest.raises(errors.Problem, match=problem) if problem else nullcontext():
        data.copy_folder(spark.place, tmp_path / "copy", live=is_live)


def test_backups_that_are_no_longer_wanted_still_return(spark):
    serve_one_chat(spark, has_backups=True)
    spark.unit.write_text(text(NEW))
    spark.begin(NEW)
    spark.chat("half")
    spark.paths.backup.unlink()
    spark.end("exit-code")
    spark.begin(OLD)
    assert spark.chats == ["one"]


def test_open_webui_does_not_start_where_anybody_listens_at_its_port(spark):
    url = "http://127.0.0.1:8080"
    update.refuse_taken_port(spark.paths, url)
    let_listen(spark.paths, 7, "/user.slice/session-3.scope", port=8080)
    message = r"python3 \(process 7 of root\) listens at 127.0.0.1:8080, .* Remedy: stop it"
    with pytest.raises(errors.Problem, match=message):
        update.refuse_taken_port(spark.paths, url)


@pytest.mark.parametrize(
    ("group", "is_accepted"),
    [("/system.slice/docker-2.scope", False), ("/system.slice/docker-open-webui.scope", True)],
)
def test_an_answer_of_another_process_than_its_container_is_none(spark, group, is_accepted):
    spark.chat("one")
    let_listen(spark.paths, 7, group, port=int(spark.url.rpartition(":")[2]))
    if is_accepted:
        spark.runs(OLD)
    else:
        with pytest.raises(errors.Problem, match="process 7 of root"):
            spark.runs(OLD)
    assert data_copies.load(spark.paths).image == (OLD if is_accepted else "")
