"""The version of a checkout and of an installation."""

import subprocess
from importlib import metadata
from pathlib import Path

from lockstep.core import version as versions

NUMBER = metadata.version("lockstep")


def git(folder: Path, *words: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    result = subprocess.run(
        ["git", *person, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


def test_a_checkout_names_its_commit_and_changes(tmp_path, monkeypatch) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "deploy.py").write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    # A tag is no commit.
    git(tmp_path, "tag", "v9")
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path)
    version = versions.version.__wrapped__
    commit = git(tmp_path, "rev-parse", "--short=8", "HEAD")
    assert version() == f"{NUMBER}+g{commit}"
    (tmp_path / "deploy.py").write_text("changed")
    assert version() == f"{NUMBER}+g{commit}.changed"
    # Without git, and as an installation.
    with monkeypatch.context() as context:
        context.setenv("PATH", "")
        assert version() == NUMBER
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path / "nowhere")
    assert version() == NUMBER
