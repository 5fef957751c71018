"""Totals of each person: counted in memory, kept in a file."""

import asyncio
import contextlib
import datetime
import os
from pathlib import Path

import pytest
from event_loop import in_event_loop

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import usage_totals

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/usage.json"


def test_totals_go_on_after_a_restart(path):
    for _ in range(2):
        totals = usage_totals.Usage(path, lambda: NOW)
        inodes = {file.stat().st_ino for file in path.parent.glob("*")}
        totals.write_changed_totals()
        assert {file.stat().st_ino for file in path.parent.glob("*")} == inodes, "nothing changed"
        totals.add_usage("anna", requests=1, prompt_tokens=10, completion_tokens=5)
        totals.add_usage("local", refusals=1)
        totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path) == {
        "anna": usage_totals.Total(2, 20, 10, 0, "2026-11-23T12:00:00Z"),
        "local": usage_totals.Total(0, 0, 0, 2, "2026-11-23T12:00:00Z"),
    }
    assert path.stat().st_mode & 0o777 == 0o600


@in_event_loop
async def test_totals_are_written_again_and_again_and_at_the_end(path):
    totals = usage_totals.Usage(path)
    keeping = asyncio.create_task(totals.write_periodically(0.001))
    totals.add_usage("anna", requests=1)
    while not path.exists():
        await asyncio.sleep(0.001)
    keeping.cancel()
    totals.add_usage("anna", requests=1)
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    assert usage_totals.read_totals_by_person(path)["anna"].requests == 2


#: Of another version of Lockstep.
EARLIER = '{"anna": {"requests": 2, "refused": 1}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", ""), ("[]", ""), (EARLIER, "a record of another version of Lockstep, which is not")],
)
def test_a_broken_file_is_told_and_counting_begins_anew(path, text, words, capsys):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(errors.Problem):
        usage_totals.read_totals_by_person(path)
    totals = usage_totals.Usage(path)
    assert f"lockstep gateway: {path}: {words}" in capsys.readouterr().err
    # `lockstep key list` reads it before the first request.
    totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path) == {}


def test_a_disk_that_refuses_is_told_and_nothing_is_lost(path, capsys):
    path.parent.write_text("a file where the folder should be")
    totals = usage_totals.Usage(path)
    totals.add_usage("anna", requests=1)
    totals.write_changed_totals()
    assert "state" in capsys.readouterr().err
    path.parent.unlink()
    totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path)["anna"].requests == 1


def test_root_follows_no_link_and_waits_for_no_pipe(path):
    path.parent.mkdir()
    (path.parent / "other").write_text('{"anna": {"requests": 1}}')
    path.symlink_to("other")
    with pytest.raises(errors.Problem, match="symbolic links"):
        usage_totals.read_totals_by_person(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(errors.Problem):
        usage_totals.read_totals_by_person(path)
