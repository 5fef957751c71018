"""`lockstep backup`: what it says, asks and ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from an_inventory import written
from click.testing import CliRunner, Result

from lockstep.cli import backup as module
from lockstep.cli.main import main
from lockstep.fleet.hosts import Answer

ONE = {"id": "abcd1234", "date": "D", "why": "nightly", "generation": 3, "image": "i@d"}
LIST = {
    "password": "/etc/lockstep/secrets/backup.key",
    "places": {"/own": {"snapshots": [{**ONE, "chats_since": 2}]}},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {"words": [], "answer": Answer(0, "done\n"), "list": LIST}

    def ask(_: object, argv: Sequence[str], **__: object) -> Answer:
        words = list(argv)[list(argv).index("backup") + 1 :]
        found["words"].append(words)
        return Answer(0, json.dumps(found["list"])) if words == ["list"] else found["answer"]

    monkeypatch.setattr(module, "ask", ask)
    return found


def said(tmp_path: Path, verb: str, *words: str) -> Result:
    hosts = {"spark-1.local": {"backup": {"enabled": True}}, "two.local": {}}
    path = written(tmp_path, hosts)
    return CliRunner().invoke(main, ["backup", verb, "-i", str(path), *words])


def test_now_is_made_where_the_inventory_has_backups(tmp_path: Path, asked: dict[str, Any]) -> None:
    done = said(tmp_path, "now")
    assert done.exit_code == 0 and "spark-1.local: done" in done.output
    assert asked["words"] == [["now"]]
    asked["answer"] = Answer(1, err="no room")
    failed = said(tmp_path, "now")
    assert failed.exit_code == 1 and "no room" in failed.output


def test_a_host_without_backups_is_said(tmp_path: Path, asked: dict[str, Any]) -> None:
    done = said(tmp_path, "check", "two.local")
    assert done.exit_code == 2 and "backup" in done.output and not asked["words"]


def test_list_says_where_the_password_is(tmp_path: Path, asked: dict[str, Any]) -> None:
    done = said(tmp_path, "list")
    assert done.exit_code == 0
    assert "secrets/backup.key" in done.output and "abcd1234" in done.output


def test_list_of_a_wiped_host_says_that_it_has_none_yet(
    tmp_path: Path, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"none_yet": True, "snapshots": [], "on_this_disk": True}
    monkeypatch.setitem(LIST, "places", {"/own": here})
    done = said(tmp_path, "list")
    assert done.exit_code == 0
    assert "spark-1.local: no backup yet (a new host, or one whose disk was lost)." in done.output
    assert "spark-1.local: warning: this backup lies on the disk" in done.output
    there = {"fault": "no password", "snapshots": [], "on_this_disk": False}
    monkeypatch.setitem(LIST, "places", {"/own": here, "sftp:x": there})
    done = said(tmp_path, "list")
    assert done.exit_code == 1
    assert "Older ones may be in sftp:x." in done.output and "warning" not in done.output


def test_restore_says_what_it_loses_and_does_nothing_unasked(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    done = said(tmp_path, "restore", "spark-1.local")
    assert done.exit_code == 2 and "2 chat(s)" in done.output
    assert asked["words"] == [["list"]]
    done = said(tmp_path, "restore", "spark-1.local", "-y")
    assert done.exit_code == 0
    assert asked["words"][-1] == ["restore", "abcd1234"]


def test_restore_of_what_is_not_there_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    assert said(tmp_path, "restore", "spark-1.local", "ffff", "-y").exit_code == 2
    assert said(tmp_path, "restore", "spark-1.local", "--from", "/no", "-y").exit_code == 2
    assert all(words == ["list"] for words in asked["words"])


@pytest.mark.parametrize(("why", "code"), [("by hand", 0), ("nightly", 0), ("update", 2)])
def test_the_newest_is_one_of_a_night_or_by_hand(
    tmp_path: Path, asked: dict[str, Any], why: str, code: int
) -> None:
    one = {**ONE, "why": why, "chats_since": 0}
    asked["list"] = {"password": "p", "places": {"/own": {"snapshots": [one]}}}
    assert said(tmp_path, "restore", "spark-1.local", "-y").exit_code == code
