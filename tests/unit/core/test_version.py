"""The version of a checkout and of an installation."""

import subprocess
from importlib import metadata

from lockstep.core import version as versions

NUMBER = metadata.version("lockstep")


def test_a_checkout_names_its_commit_and_changes(tmp_path, monkeypatch) -> None:
    (tmp_path / "deploy.py").write_text("")
    commit = "git -c user.name=a -c user.email=a@b commit --quiet --message=first"
    # A tag is no commit.
    script = f"git init -q; git add .; {commit}; git tag v9; git rev-parse --short=8 HEAD"
    result = subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    commit = result.stdout.decode().strip()
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path)
    version = versions.version.__wrapped__
    assert version() == f"{NUMBER}+g{commit}"
    (tmp_path / "deploy.py").write_text("changed")
    assert version() == f"{NUMBER}+g{commit}.changed"
    # Without git, and as an installation.
    with monkeypatch.context() as context:
        context.setenv("PATH", "")
        assert version() == NUMBER
    monkeypatch.setattr(versions, "_REPOSITORY", tmp_path / "nowhere")
    assert version() == NUMBER
