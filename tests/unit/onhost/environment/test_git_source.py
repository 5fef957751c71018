"""A commit from its origin: by its branch, and by its id where the branch is gone."""

import subprocess
from pathlib import Path

import pytest
from a_repository import BRANCH, commit, fork, git, source

from lockstep.onhost.core import errors
from lockstep.onhost.environment import git_source
from lockstep.onhost.fetch import peer_client


@pytest.fixture
def origin(tmp_path):
    """A fork with a request to pull its branch, and `main` checked out."""
    folder = fork(tmp_path / "origin")
    git(folder, "update-ref", "refs/pull/1/head", "HEAD")
    git(folder, "checkout", "--quiet", "main")
    return folder


def check_out(tmp_path: Path, wanted_source: dict[str, str]) -> Path:
    """The working copy after one run."""

    def run(*argv: str, **environment: str) -> None:
        if subprocess.run(argv, check=False).returncode != 0:
            raise errors.Problem(f"{argv[0]} failed")

    (tmp_path / "store/.locks").mkdir(parents=True, exist_ok=True)
    copy = git_source.SourceRepository(tmp_path / "copy", wanted_source, tmp_path / "store", run)
    copy.check_out(peer_client.Copier(None))
    return tmp_path / "copy"


@pytest.mark.parametrize(
    "meanwhile", [("branch", "-D", BRANCH), ("branch", "--force", BRANCH, "main")]
)
def test_a_commit_comes_with_its_history_also_where_its_branch_left_it(tmp_path, origin, meanwhile):
    wanted_source = source(origin, BRANCH)
    git(origin, *meanwhile)
    copy = check_out(tmp_path, wanted_source)
    assert git(copy, "rev-parse", "HEAD") == wanted_source["commit"]
    # The build looks for the commit at which the fork left.
    assert git(copy, "log", "--format=%s") == "ours\nupstream"
    assert git(copy, "tag") == "v1"


def test_another_commit_is_checked_out_whatever_became_of_the_copy_and_its_tags(tmp_path, origin):
    git(origin, "checkout", "--quiet", BRANCH)
    # A repository that was cut off at its first moment is mended.
    (tmp_path / "copy/.git").mkdir(parents=True)
    copy = check_out(tmp_path, source(origin))
    # Locks of a git that was cut off, and a change by hand.
    for lock in ("index.lock", "HEAD.lock", "config.lock"):
        (copy / ".git" / lock).touch()
    (copy / "setup.py").write_text("tampered")
    new = commit(origin)
    git(origin, "tag", "--force", "v1", "HEAD")
    check_out(tmp_path, source(origin))
    assert git(copy, "rev-parse", "HEAD", "v1") == f"{new}\n{new}"
    assert (copy / "setup.py").read_text() == "ours"
    # One that the origin has no more is a problem.
    with pytest.raises(errors.Problem):
        check_out(tmp_path, {**source(origin), "commit": 40 * "a"})


def test_a_bundle_that_is_spoiled_is_not_used(tmp_path, origin):
    wanted_source = source(origin, BRANCH)
    copy = check_out(tmp_path, wanted_source)
    bundle = tmp_path / "store" / wanted_source["commit"]
    bundle.write_bytes(bundle.read_bytes()[:-20] + b"x" * 20)
    copy.rename(tmp_path / "another")
    assert git(check_out(tmp_path, wanted_source), "rev-parse", "HEAD") == wanted_source["commit"]
    # Another one is kept for others.
    assert not bundle.read_bytes().endswith(20 * b"x")
