"""Keys of persons: who a request comes from, and how a change of the file is seen."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest

from lockstep.onhost.core import atomic
from lockstep.onhost.gateway import keys

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
KEY, OTHER = keys.new_key(), keys.new_key()
SINCE = "2026-11-01T00:00:00Z"
BEARER = [(b"host", b"a"), (b"authorization", f"Bearer {KEY}".encode())]


def entry(person: str = "anna", key: str | None = KEY, **more: object) -> dict[str, object]:
    sha256 = key and keys.digest(key.encode())
    return {"person": person, "since": SINCE, "sha256": sha256, **more}


def write(path: Path, *entries: object) -> None:
    atomic.write_json(path, {"keys": entries})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        (b"authorization", b"Bearer %s", True),
        (b"authorization", b"bearer  %s ", True),
        (b"x-api-key", b"%s", True),
        (b"authorization", b"%s", False),
        (b"authorization", b"Basic %s", False),
        (b"authorization", b"Bearer %sx", False),
        (b"authorization", b"Bearer ", False),
        (b"x-api-key", b"", False),
        (b"cookie", b"%s", False),
    ],
)
def test_a_key_is_known_in_either_header(
    path: Path, name: bytes, value: bytes, found: bool
) -> None:
    write(path, entry("ben", OTHER), entry(role="operate"), entry("eve", None))
    header = (name, value.replace(b"%s", KEY.encode()))
    expected = keys.Person("anna", "operate") if found else None
    assert keys.Keys(path, lambda: NOW).who([(b"accept", b"*/*"), header]) == expected


def test_the_digest_itself_is_no_key(path: Path) -> None:
    write(path, entry())
    stolen = str(entry()["sha256"]).encode()
    assert keys.Keys(path).who([(b"x-api-key", stolen)]) is None


@pytest.mark.parametrize(
    ("more", "found"),
    [({}, True), ({"until": "2026-11-23"}, True), ({"until": "2026-11-22"}, False)],
)
def test_a_key_ends_with_its_last_day(path: Path, more: dict[str, str], found: bool) -> None:
    write(path, entry(**more))
    assert (keys.Keys(path, lambda: NOW).who(BEARER) is not None) is found


def test_a_change_is_in_force_with_the_next_request(path: Path) -> None:
    known = keys.Keys(path, lambda: NOW)
    assert known.who(BEARER) is None, "without a file nobody has a key"
    write(path, entry())
    assert known.who(BEARER) == keys.Person("anna", "use")
    write(path, entry(role="operate"))
    assert known.who(BEARER) == keys.Person("anna", "operate")
    write(path, entry(key=None))
    assert known.who(BEARER) is None
    write(path, entry())
    assert known.who(BEARER) is not None
    path.unlink()
    assert known.who(BEARER) is None


def test_a_file_that_did_not_change_is_not_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, entry())
    known = keys.Keys(path, lambda: NOW)
    assert known.who(BEARER)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read again"))
    assert known.who(BEARER)


BROKEN = {
    "cut": '{"keys": [',
    "list": "[]",
    "shape": '{"keys": {"anna": 1}}',
    "digest": json.dumps({"keys": [entry() | {"sha256": KEY}]}),
    "role": json.dumps({"keys": [entry(), entry("ben", OTHER, role="root")]}),
    "key of a later version": json.dumps({"keys": [entry(models=["qwen"])]}),
    "day": json.dumps({"keys": [entry(until="soon")]}),
    "time": json.dumps({"keys": [entry() | {"since": "2026-11-01"}]}),
    "twice": json.dumps({"keys": [entry(), entry(key=None)]}),
    "nobody's": json.dumps({"keys": [entry("local")]}),
    "the host's": json.dumps({"keys": [entry("host-key")]}),
    "bytes": "\udcff",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_refuses_everybody_and_is_told_once(
    path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = keys.Keys(path, lambda: NOW)
    write(path, entry())
    assert known.who(BEARER)
    atomic.write(path, text)
    assert [known.who(BEARER) for _ in range(3)] == [None] * 3
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert said.startswith(f"lockstep gateway: {path}: ")
    assert KEY not in said
    write(path, entry())
    assert known.who(BEARER), "mended"


def test_a_folder_that_is_closed_refuses_everybody(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, entry())
    known = keys.Keys(path, lambda: NOW)
    assert known.who(BEARER)

    def closed(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)
    monkeypatch.setattr(Path, "read_text", closed)
    assert [known.who(BEARER) for _ in range(2)] == [None] * 2
    assert capsys.readouterr().err.count("Permission denied") == 1


def test_keys_differ_and_have_256_bits() -> None:
    assert KEY != OTHER
    assert KEY.startswith("lk-") and len(KEY) == len("lk-") + 43


def test_of_two_changes_at_one_time_the_revocation_is_the_later() -> None:
    added = keys.Entry("anna", SINCE, keys.digest(b"x"))
    revoked = keys.Entry("anna", SINCE)
    assert revoked.age > added.age
    assert keys.Entry("anna", "2026-11-01T00:00:01Z", keys.digest(b"x")).age > revoked.age


def test_every_key_of_a_request_counts() -> None:
    headers = [(b"x-api-key", b"a"), (b"authorization", b"Bearer b"), (b"x-api-key", b" ")]
    assert keys.given(headers) == [b"a", b"b"]
