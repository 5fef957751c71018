"""`lockstep backup`: what it says, asks and ends with."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from an_inventory import write_inventory
from click.testing import CliRunner

from lockstep.cli import backup as module
from lockstep.cli.main import main
from lockstep.fleet.hosts import HostAnswer

ONE = {"id": "abcd1234", "date": "D", "why": "nightly", "generation": 3, "image": "i@d"}
PLACES: dict[str, Any] = {"/own": {"snapshots": [{**ONE, "chats_since": 2}]}}


class Sparks:
    """A Spark with backups and one without; `answer` is what the program on a host says."""

    def __init__(self, folder: Path) -> None:
        hosts = {"spark-1.local": {"backup": {"enabled": True}}, "two.local": {}}
        self.inventory = str(write_inventory(folder, hosts))
        self.words: list[list[str]] = []
        self.answer, self.places = HostAnswer(0, "done\n"), PLACES

    def ask(self, _: object, argv: Sequence[str], **__: object) -> HostAnswer:
        words = list(argv)[list(argv).index("backup") + 1 :]
        self.words.append(words)
        listing = {"password": "/etc/lockstep/secrets/backup.key", "places": self.places}
        return HostAnswer(0, json.dumps(listing)) if words == ["list"] else self.answer

    def run(self, verb: str, *words: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, ["backup", verb, "-i", self.inventory, *words])
        assert result.exit_code == exit_code, result.output
        return result.output


@pytest.fixture
def sparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sparks:
    sparks = Sparks(tmp_path)
    monkeypatch.setattr(module, "ask", sparks.ask)
    return sparks


def test_backups_are_made_and_listed_where_the_inventory_has_them(sparks: Sparks) -> None:
    output = sparks.run("check", "two.local", exit_code=2)
    assert "backup" in output and not sparks.words
    assert "spark-1.local: done" in sparks.run("now")
    assert sparks.words == [["now"]]
    sparks.answer = HostAnswer(1, err="no room")
    assert "no room" in sparks.run("now", exit_code=1)
    output = sparks.run("list")
    assert "secrets/backup.key" in output and "abcd1234" in output
    places: dict[str, Any] = {"/own": {"none_yet": True, "snapshots": [], "on_this_disk": True}}
    sparks.places = places
    output = sparks.run("list")
    assert "spark-1.local: no backup yet (a new host, or one whose disk was lost)." in output
    assert "spark-1.local: warning: this backup lies on the disk" in output
    places["sftp:x"] = {"fault": "no password", "snapshots": [], "on_this_disk": False}
    output = sparks.run("list", exit_code=1)
    assert "Older ones may be in sftp:x." in output and "warning" not in output


def test_restore_says_what_it_loses_and_does_nothing_unasked(sparks: Sparks) -> None:
    assert "2 chat(s)" in sparks.run("restore", "spark-1.local", exit_code=2)
    for absent_backup in (("ffff",), ("--from", "/no")):
        sparks.run("restore", "spark-1.local", *absent_backup, "-y", exit_code=2)
    assert all(words == ["list"] for words in sparks.words)
    sparks.run("restore", "spark-1.local", "-y")
    assert sparks.words[-1] == ["restore", "abcd1234"]
    # The newest is one of a night or by hand.
    for why, code in (("by hand", 0), ("update", 2)):
        sparks.places = {"/own": {"snapshots": [{**ONE, "why": why, "chats_since": 0}]}}
        sparks.run("restore", "spark-1.local", "-y", exit_code=code)
