"""`lockstep backup`: what it says, asks and ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from an_inventory import write_inventory
from click.testing import CliRunner, Result

from lockstep.cli import backup as module
from lockstep.cli.main import main
from lockstep.fleet.hosts import HostAnswer

ONE = {"id": "abcd1234", "date": "D", "why": "nightly", "generation": 3, "image": "i@d"}
LIST = {
    "password": "/etc/lockstep/secrets/backup.key",
    "places": {"/own": {"snapshots": [{**ONE, "chats_since": 2}]}},
}


@pytest.fixture
def backup_program(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    record: dict[str, Any] = {"words": [], "answer": HostAnswer(0, "done\n"), "list": LIST}

    def ask(_: object, argv: Sequence[str], **__: object) -> HostAnswer:
        words = list(argv)[list(argv).index("backup") + 1 :]
        record["words"].append(words)
        return HostAnswer(0, json.dumps(record["list"])) if words == ["list"] else record["answer"]

    monkeypatch.setattr(module, "ask", ask)
    return record


def run_backup(tmp_path: Path, verb: str, *words: str) -> Result:
    hosts = {"spark-1.local": {"backup": {"enabled": True}}, "two.local": {}}
    path = write_inventory(tmp_path, hosts)
    return CliRunner().invoke(main, ["backup", verb, "-i", str(path), *words])


def test_now_is_made_where_the_inventory_has_backups(
    tmp_path: Path, backup_program: dict[str, Any]
) -> None:
    result = run_backup(tmp_path, "check", "two.local")
    assert result.exit_code == 2 and "backup" in result.output and not backup_program["words"]
    result = run_backup(tmp_path, "now")
    assert result.exit_code == 0 and "spark-1.local: done" in result.output
    assert backup_program["words"] == [["now"]]
    backup_program["answer"] = HostAnswer(1, err="no room")
    result = run_backup(tmp_path, "now")
    assert result.exit_code == 1 and "no room" in result.output


def test_list_says_where_the_password_is_or_that_there_is_none_yet(
    tmp_path: Path, backup_program: dict[str, Any]
) -> None:
    result = run_backup(tmp_path, "list")
    assert result.exit_code == 0
    assert "secrets/backup.key" in result.output and "abcd1234" in result.output
    places = {"/own": {"none_yet": True, "snapshots": [], "on_this_disk": True}}
    backup_program["list"] = {**LIST, "places": places}
    result = run_backup(tmp_path, "list")
    assert result.exit_code == 0
    assert "spark-1.local: no backup yet (a new host, or one whose disk was lost)." in result.output
    assert "spark-1.local: warning: this backup lies on the disk" in result.output
    places["sftp:x"] = {"fault": "no password", "snapshots": [], "on_this_disk": False}
    result = run_backup(tmp_path, "list")
    assert result.exit_code == 1
    assert "Older ones may be in sftp:x." in result.output and "warning" not in result.output


def test_restore_says_what_it_loses_and_does_nothing_unasked(
    tmp_path: Path, backup_program: dict[str, Any]
) -> None:
    result = run_backup(tmp_path, "restore", "spark-1.local")
    assert result.exit_code == 2 and "2 chat(s)" in result.output
    for absent_backup in (("ffff",), ("--from", "/no")):
        assert run_backup(tmp_path, "restore", "spark-1.local", *absent_backup, "-y").exit_code == 2
    assert all(words == ["list"] for words in backup_program["words"])
    result = run_backup(tmp_path, "restore", "spark-1.local", "-y")
    assert result.exit_code == 0
    assert backup_program["words"][-1] == ["restore", "abcd1234"]


@pytest.mark.parametrize(("why", "code"), [("by hand", 0), ("nightly", 0), ("update", 2)])
def test_the_newest_is_one_of_a_night_or_by_hand(
    tmp_path: Path, backup_program: dict[str, Any], why: str, code: int
) -> None:
    snapshot = {**ONE, "why": why, "chats_since": 0}
    backup_program["list"] = {"password": "p", "places": {"/own": {"snapshots": [snapshot]}}}
    assert run_backup(tmp_path, "restore", "spark-1.local", "-y").exit_code == code
