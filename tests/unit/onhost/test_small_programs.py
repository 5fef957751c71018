"""Small programs of a host: secrets, Open WebUI's keys."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from forked_host import run_program

from lockstep.onhost.core import errors

DIGEST = "sha256:" + 64 * "a"
REFERENCE = f"registry.example:5000/lmsysorg/sglang@{DIGEST}"


def run(word: str, *argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of the host, with its stand-ins on the path."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return run_program(word, *argv, environment={**os.environ, "PATH": path})


# make_secrets.py


def secrets_of(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_keys_are_drawn_once_and_are_for_root_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets/open-webui.env"
    result = run("make-secrets", str(path), "me@example.com", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    drawn_secrets = secrets_of(path)
    assert sorted(drawn_secrets) == [
        "WEBUI_ADMIN_EMAIL",
        "WEBUI_ADMIN_NAME",
        "WEBUI_ADMIN_PASSWORD",
        "WEBUI_SECRET_KEY",
    ]
    assert drawn_secrets["WEBUI_ADMIN_EMAIL"] == "me@example.com"
    # `docker run --env-file` takes a line as it is: no quotes, no blanks, no comment sign.
    for name in ("WEBUI_ADMIN_PASSWORD", "WEBUI_SECRET_KEY"):
        assert re.fullmatch(r"[\w-]{24,}", drawn_secrets[name])
        assert drawn_secrets[name] not in result.stdout
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208


def test_beside_accounts_that_are_there_no_administrator_is_made(tmp_path: Path) -> None:
    path = tmp_path / "open-webui.env"
    result = run("make-secrets", str(path), "", folder=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"made {path}\n")
    assert sorted(secrets_of(path)) == ["WEBUI_SECRET_KEY"]


def test_two_hosts_have_different_keys(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("make-secrets", str(tmp_path / name), "me@example.com", folder=tmp_path)
    first_secrets, second_secrets = secrets_of(tmp_path / "a"), secrets_of(tmp_path / "b")
    assert first_secrets["WEBUI_SECRET_KEY"] != second_secrets["WEBUI_SECRET_KEY"]
    assert first_secrets["WEBUI_ADMIN_PASSWORD"] != second_secrets["WEBUI_ADMIN_PASSWORD"]


def test_a_second_run_keeps_the_keys_and_closes_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "open-webui.env"
    run("make-secrets", str(path), "me@example.com", folder=tmp_path)
    earlier_text = path.read_text()
    path.chmod(0o644)
    assert run("make-secrets", str(path), "other@example.com", folder=tmp_path).returncode == 0
    assert path.read_text() == earlier_text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_replaced_and_a_folder_is_not_taken_for_the_file(tmp_path: Path) -> None:
    path, target = tmp_path / "api-key", tmp_path / "mine"
    target.write_text("mine\n")
    target.chmod(0o644)
    path.symlink_to(target)
    assert run("make-secrets", str(path), folder=tmp_path).returncode == 0
    assert path.is_file() and not path.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("mine\n", 0o644)
    path.unlink()
    path.mkdir()
    result = run("make-secrets", str(path), folder=tmp_path)
    assert (result.returncode, result.stderr) == (
        errors.EXIT_FAILED,
        f"lockstep make-secrets: {path}: Is a directory\n",
    )


def test_a_run_that_was_cut_off_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "open-webui.env"
    path.with_suffix(".partial").write_text("WEBUI_SECRET_KEY=ha")
    assert run("make-secrets", str(path), "me@example.com", folder=tmp_path).returncode == 0
    assert len(secrets_of(path)) == 4


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file/open-webui.env"
    result = run("make-secrets", str(path), "me@example.com", folder=tmp_path)
    assert result.returncode == errors.EXIT_FAILED
    assert re.fullmatch(
        r"lockstep make-secrets: .*/file.*: Not a directory|.*File exists\n", result.stderr
    )


def test_an_api_key_is_drawn_once_and_shown_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "secrets/api-key"
    result = run("make-secrets", str(path), folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text()
    # 256 bits, in letters that no header, shell or Docker's file of variables minds.
    assert re.fullmatch(r"sk-[\w-]{43}\n", key)
    assert key.strip() not in result.stdout
    assert run("make-secrets", str(path), folder=tmp_path).returncode == 0
    assert path.read_text() == key


@pytest.mark.parametrize("argv", [[], ["a", "b", "c"]])
def test_wrong_use_of_make_secrets(tmp_path: Path, argv: list[str]) -> None:
    result = run("make-secrets", *argv, folder=tmp_path)
    assert result.returncode == errors.EXIT_USAGE
    assert "usage: make-secrets" in result.stderr
