"""Entries on one host: taken over, shown, told in the journal."""

import grp
import io
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys, keys_program

ANNA = {
    "person": "anna",
    "since": "2026-11-01T00:00:00Z",
    "sha256": keys.key_digest(b"anna's"),
    "role": "use",
    "until": None,
}
REVOKED = {**ANNA, "sha256": None}
BEN = {**ANNA, "person": "ben", "sha256": keys.key_digest(b"ben's"), "role": "operate"}
BEN |= {"until": "2026-12-31"}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """One host's keys.json, the lines in its journal, and the program with entries or a text."""
    path, journal = tmp_path / "gateway/keys.json", []
    monkeypatch.setattr(keys, "ACCOUNT", grp.getgrgid(os.getgid()).gr_name)
    monkeypatch.setattr("syslog.syslog", lambda _, line: journal.append(line))
    monkeypatch.setenv("SUDO_USER", "spark")

    def take(*entries: object, text: str | None = None) -> int:
        text = json.dumps({"keys": entries}) if text is None else text
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return keys_program.main(["take"], path, tmp_path / "usage.json")

    return SimpleNamespace(path=path, journal=journal, take=take)


def entries(host: Any) -> list[Any]:
    return json.loads(host.path.read_text())["keys"]


def test_the_later_change_of_a_person_stands_in_a_file_for_root_and_the_gateway_only(host):
    assert host.take(ANNA, BEN) == 0
    assert entries(host) == [ANNA, BEN]
    assert host.path.stat().st_mode & 0o777 == 0o640
    assert host.path.parent.stat().st_mode & 0o777 == 0o750
    host.take(REVOKED)
    assert entries(host) == [REVOKED, BEN]
    host.take(ANNA)
    assert entries(host) == [REVOKED, BEN], "a key that was revoked at the same time came back"
    later = {**ANNA, "since": "2026-11-01T00:00:01Z"}
    host.take(later)
    assert entries(host) == [later, BEN]
    assert host.journal == [
        "spark: key of anna: added, use",
        "spark: key of ben: added, operate, until 2026-12-31",
        "spark: key of anna: revoked",
        "spark: key of anna: added, use",
    ]


def test_what_is_here_already_is_not_written(host):
    host.take(ANNA)
    earlier_inode = host.path.stat().st_ino
    host.take(ANNA)
    assert host.path.stat().st_ino == earlier_inode
    assert len(host.journal) == 1


@pytest.mark.parametrize(
    "text",
    ["", "lk-a-key-by-mistake", json.dumps({"keys": [{**ANNA, "person": "../x"}]})],
    ids=("nothing", "key", "name"),
)
def test_what_is_no_entry_changes_nothing_and_is_not_repeated(host, text):
    with pytest.raises(errors.Problem) as error:
        host.take(text=text)
    assert str(error.value).startswith("standard input: ")
    assert "lk-" not in str(error.value)
    assert not host.path.exists()


def test_a_broken_file_is_not_replaced(host):
    host.take(ANNA)
    host.path.write_text("{")
    with pytest.raises(errors.Problem, match="expected a JSON document"):
        host.take(BEN)
    assert host.path.read_text() == "{"


def test_without_a_gateway_nothing_is_made(host, monkeypatch):
    monkeypatch.setattr(keys, "ACCOUNT", "no-such-group")
    with pytest.raises(errors.Problem, match="no gateway is here"):
        host.take(ANNA)
    assert not host.path.parent.exists()
