"""The version of a checkout and of an installation."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from lockstep.core import version as versions

NUMBER = metadata.version("lockstep")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one commit, in place of this one."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "deploy.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    # A tag is no commit.
    git(tmp_path, "tag", "v9")
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    result = subprocess.run(
        ["git", *person, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


def version() -> str:
    return versions.version.__wrapped__()


def test_a_checkout_names_its_commit_and_changes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(checkout, "rev-parse", "--short=8", "HEAD")
    assert version() == f"{NUMBER}+g{commit}"
    (checkout / "deploy.py").write_text("changed")
    assert version() == f"{NUMBER}+g{commit}.changed"
    # Git does not read it, as no installation.
    monkeypatch.setenv("PATH", "")
    assert version() == NUMBER
    monkeypatch.undo()
    monkeypatch.setattr(versions, "_REPOSITORY", checkout / "nowhere")
    assert version() == NUMBER
