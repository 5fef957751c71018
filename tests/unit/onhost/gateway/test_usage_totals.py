"""Totals of each person: counted in memory, kept in a file."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
from pathlib import Path

import pytest

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import usage_totals

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/usage.json"


def test_totals_go_on_after_a_restart(path: Path) -> None:
    for _ in range(2):
        totals = usage_totals.Usage(path, lambda: NOW)
        totals.add_usage("anna", requests=1, prompt_tokens=10, completion_tokens=5)
        totals.add_usage("local", refusals=1)
        totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path) == {
        "anna": usage_totals.Total(2, 20, 10, 0, "2026-11-23T12:00:00Z"),
        "local": usage_totals.Total(0, 0, 0, 2, "2026-11-23T12:00:00Z"),
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_did_not_change_is_not_written(path: Path) -> None:
    totals = usage_totals.Usage(path)
    totals.write_changed_totals()
    assert not path.exists()
    totals.add_usage("anna", requests=1)
    totals.write_changed_totals()
    earlier_inode = path.stat().st_ino
    totals.write_changed_totals()
    assert path.stat().st_ino == earlier_inode


def test_it_is_written_again_and_again_and_at_the_end(path: Path) -> None:
    async def run() -> None:
        totals = usage_totals.Usage(path)
        keeping = asyncio.create_task(totals.write_periodically(0.001))
        totals.add_usage("anna", requests=1)
        while not path.exists():
            await asyncio.sleep(0.001)
        keeping.cancel()
        totals.add_usage("anna", requests=1)
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    asyncio.run(asyncio.wait_for(run(), 180))
    assert usage_totals.read_totals_by_person(path)["anna"].requests == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"anna": {"requests": "many"}}'])
def test_a_broken_file_is_told_and_counting_begins_anew(
    path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(errors.Problem):
        usage_totals.read_totals_by_person(path)
    totals = usage_totals.Usage(path)
    assert f"{path}: " in capsys.readouterr().err
    totals.add_usage("anna", requests=1)
    totals.write_changed_totals()
    assert json.loads(path.read_text())["anna"]["requests"] == 1


def test_a_file_of_an_earlier_version_is_called_so_and_begun_anew_at_once(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.mkdir()
    path.write_text('{"anna": {"requests": 2, "refused": 1}}')
    totals = usage_totals.Usage(path)
    assert capsys.readouterr().err == (
        f"lockstep gateway: {path}: a record of another version of Lockstep, which is not carried "
        "over. Counting begins anew\n"
    )
    # `lockstep key list` reads it before the first request.
    totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path) == {}


def test_a_disk_that_refuses_is_told_and_nothing_is_lost(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.write_text("a file where the folder should be")
    totals = usage_totals.Usage(path)
    totals.add_usage("anna", requests=1)
    totals.write_changed_totals()
    assert "state" in capsys.readouterr().err
    path.parent.unlink()
    totals.write_changed_totals()
    assert usage_totals.read_totals_by_person(path)["anna"].requests == 1


def test_root_follows_no_link_and_waits_for_no_pipe(path: Path) -> None:
    path.parent.mkdir()
    (path.parent / "other").write_text('{"anna": {"requests": 1}}')
    path.symlink_to("other")
    with pytest.raises(errors.Problem, match="symbolic links"):
        usage_totals.read_totals_by_person(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(errors.Problem):
        usage_totals.read_totals_by_person(path)
