"""Secrets that a host draws for itself: Open WebUI's, and the key of engines."""

import os
import re
import stat
import subprocess
from pathlib import Path

from onhost_fakes import run_program

from lockstep.onhost.core import errors

EMAIL = "me@example.com"


def make(*argv: object) -> subprocess.CompletedProcess[str]:
    return run_program("make-secrets", *map(str, argv))


def secrets_of(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_drawn_once_and_are_for_root_alone(tmp_path):
    path = tmp_path / "secrets/open-webui.env"
    # A run that was cut off is no obstacle.
    path.parent.mkdir(mode=0o700)
    path.with_suffix(".partial").write_text("WEBUI_SECRET_KEY=ha")
    result = make(path, EMAIL)
    assert (result.returncode, result.stderr, mode(path)) == (0, "", 0o600)
    drawn_secrets = secrets_of(path)
    random_names = ["WEBUI_ADMIN_PASSWORD", "WEBUI_SECRET_KEY"]
    assert sorted(drawn_secrets) == ["WEBUI_ADMIN_EMAIL", "WEBUI_ADMIN_NAME", *random_names]
    assert drawn_secrets["WEBUI_ADMIN_EMAIL"] == EMAIL
    other_path = tmp_path / "other/open-webui.env"
    make(other_path, EMAIL)
    assert os.listdir(other_path.parent) == [other_path.name]  # noqa: PTH208
    assert mode(other_path.parent) == 0o700
    # `docker run --env-file` takes a line as it is: no quotes, no blanks, no comment sign.
    for name in random_names:
        assert re.fullmatch(r"[\w-]{24,}", drawn_secrets[name])
        assert drawn_secrets[name] not in result.stdout
        assert drawn_secrets[name] != secrets_of(other_path)[name]
    # A second run keeps them and closes the file again.
    path.chmod(0o644)
    assert make(path, "other@example.com").returncode == 0
    assert (secrets_of(path), mode(path)) == (drawn_secrets, 0o600)


def test_beside_accounts_that_are_there_no_administrator_is_made(tmp_path):
    path = tmp_path / "open-webui.env"
    result = make(path, "")
    assert (result.returncode, result.stdout) == (0, f"made {path}\n")
    assert sorted(secrets_of(path)) == ["WEBUI_SECRET_KEY"]


def test_an_api_key_is_drawn_once_and_shown_nowhere(tmp_path):
    path = tmp_path / "secrets/api-key"
    result = make(path)
    assert (result.returncode, result.stderr, mode(path)) == (0, "", 0o600)
    key = path.read_text()
    # 256 bits, in letters that no header, shell or Docker's file of variables minds.
    assert re.fullmatch(r"sk-[\w-]{43}\n", key)
    assert key.strip() not in result.stdout
    assert (make(path).returncode, path.read_text()) == (0, key)


def test_a_link_is_replaced_and_a_file_that_cannot_be_written_is_one_line(tmp_path):
    path, target = tmp_path / "api-key", tmp_path / "mine"
    target.write_text("mine\n")
    target.chmod(0o644)
    path.symlink_to(target)
    assert make(path).returncode == 0
    assert path.is_file() and not path.is_symlink()
    assert (target.read_text(), mode(target)) == ("mine\n", 0o644)
    # A folder is not taken for the file.
    path.unlink()
    path.mkdir()
    for place, reason in ((path, "Is a directory"), (target / "api-key", "(File|Not a).*")):
        result = make(place)
        assert result.returncode == errors.EXIT_FAILED
        assert re.fullmatch(
            rf"lockstep make-secrets: {target.parent}/.*: {reason}\n", result.stderr
        )


def test_wrong_use_is_explained():
    result = make("a", "b", "c")
    assert result.returncode == errors.EXIT_USAGE and "usage: make-secrets" in result.stderr
