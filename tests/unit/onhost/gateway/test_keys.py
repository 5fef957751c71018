"""Keys of persons: who a request comes from, and how a change of the file is seen."""

import datetime
import json
import re
from pathlib import Path

import pytest

from lockstep.onhost.core import atomic_files
from lockstep.onhost.gateway import keys

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
KEY, OTHER = keys.new_key(), keys.new_key()
SINCE = "2026-11-01T00:00:00Z"
BEARER = [(b"host", b"a"), (b"authorization", f"Bearer {KEY}".encode())]


def entry(person: str = "anna", key: str | None = KEY, **more: object) -> dict[str, object]:
    sha256 = key and keys.key_digest(key.encode())
    return {"person": person, "since": SINCE, "sha256": sha256, **more}


def write(path: Path, *entries: object) -> None:
    atomic_files.write_json(path, {"keys": entries})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.mark.parametrize(
    ("name", "value", "is_known"),
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
        # The digest itself is no key.
        (b"x-api-key", b"%d", False),
    ],
)
def test_a_key_is_known_in_either_header(path, name, value, is_known):
    write(path, entry("ben", OTHER), entry(role="operate"), entry("eve", None))
    digest = keys.key_digest(KEY.encode()).encode()
    header = (name, value.replace(b"%s", KEY.encode()).replace(b"%d", digest))
    expected_person = keys.Person("anna", "operate") if is_known else None
    # Every key of a request counts.
    headers = [(b"x-api-key", b"another"), (b"x-api-key", b" "), header]
    assert keys.Keys(path, lambda: NOW).person_of(headers) == expected_person


def test_a_change_is_in_force_with_the_next_request(path):
    known_keys = keys.Keys(path, lambda: NOW)
    assert known_keys.person_of(BEARER) is None, "without a file nobody has a key"
    write(path, entry())
    assert known_keys.person_of(BEARER) == keys.Person("anna", "use")
    write(path, entry(role="operate"))
    assert known_keys.person_of(BEARER) == keys.Person("anna", "operate")
    write(path, entry(key=None))
    assert known_keys.person_of(BEARER) is None
    write(path, entry(until="2026-11-22"))
    assert known_keys.person_of(BEARER) is None
    write(path, entry(until="2026-11-23"))
    assert known_keys.person_of(BEARER), "a key is valid on its last day"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read again"))
        assert known_keys.person_of(BEARER), "a file that did not change is not read again"
    path.unlink()
    assert known_keys.person_of(BEARER) is None


@pytest.mark.parametrize(
    "entries",
    [
        '{"keys": [',
        "[]",
        "\udcff",
        [entry() | {"sha256": KEY}],
        [entry(), entry("ben", OTHER, role="root")],
        # The key of a later version.
        [entry(models=["qwen"])],
        [entry() | {"since": "2026-11-01"}],
        [entry(), entry(key=None)],
        # Names of nobody, and of the host.
        [entry("local")],
        [entry("host-key")],
    ],
)
def test_a_broken_file_refuses_everybody_and_is_told_once(path, entries, capsys):
    known_keys = keys.Keys(path, lambda: NOW)
    write(path, entry())
    assert known_keys.person_of(BEARER)
    text = entries if isinstance(entries, str) else json.dumps({"keys": entries})
    atomic_files.write(path, text)
    assert [known_keys.person_of(BEARER) for _ in range(3)] == [None] * 3
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1
    assert output.startswith(f"lockstep gateway: {path}: ")
    assert KEY not in output
    write(path, entry())
    assert known_keys.person_of(BEARER), "mended"


@pytest.mark.parametrize("text", ["soon", "", "20261123", "2026-11-31", "2026-11-23T12:00:00"])
def test_a_wrong_day_is_told_with_what_is_allowed(text):
    assert keys.is_day("2026-11-23") and keys.is_time(SINCE)
    assert not keys.is_day(text) and not keys.is_time(text)
    message = "keys.json: keys[0].until is not a day; allowed: YYYY-MM-DD"
    with pytest.raises(keys.BrokenKeys, match=f"^{re.escape(message)}$"):
        keys.entries_of_text(json.dumps({"keys": [entry(until=text)]}), "keys.json")


def test_a_folder_that_is_closed_refuses_everybody(path, capsys, monkeypatch):
    write(path, entry())
    known_keys = keys.Keys(path, lambda: NOW)
    assert known_keys.person_of(BEARER)

    def deny_access(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for method in ("stat", "read_text"):
        monkeypatch.setattr(Path, method, deny_access)
    assert [known_keys.person_of(BEARER) for _ in range(2)] == [None] * 2
    assert capsys.readouterr().err.count("Permission denied") == 1


def test_keys_differ_and_have_256_bits():
    assert KEY != OTHER
    assert KEY.startswith("lk-") and len(KEY) == len("lk-") + 43
