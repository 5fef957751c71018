"""A commit from its origin: by its branch, and by its id where the branch is gone."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from lab.git.git_content import FORK_BRANCH, git_repositories
from lab.git.git_server import GitServer, merge
from lab.http.access_log import AccessLog
from lockstep.onhost.core import errors
from lockstep.onhost.environment import git_source
from lockstep.onhost.fetch import peer_client

BRANCH = "fix_parsing"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example")
    argv = ("git", "-C", str(folder), *who, *words)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A fork with two commits on a branch of its own, and a request to pull it."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "upstream")
    git(folder, "checkout", "--quiet", "-b", BRANCH)
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "ours")
    git(folder, "update-ref", "refs/pull/1/head", "HEAD")
    git(folder, "checkout", "--quiet", "main")
    return folder


def check_out(tmp_path: Path, origin: Path | str, commit: str, branch: str = BRANCH) -> Path:
    def run(*argv: str, **environment: str) -> None:
        if subprocess.run(argv, check=False).returncode != 0:
            raise errors.Problem(f"{argv[0]} failed")

    (tmp_path / "store/.locks").mkdir(parents=True)
    source = {"git": str(origin), "branch": branch, "commit": commit}
    copy = git_source.Repository(tmp_path / "copy", source, tmp_path / "store", run)
    copy.check_out(peer_client.Copier(None))
    return tmp_path / "copy"


@pytest.mark.parametrize("there", [True, False], ids=["branch", "no branch any more"])
def test_a_commit_comes_with_its_history(tmp_path: Path, origin: Path, there: bool) -> None:
    commit = git(origin, "rev-parse", BRANCH)
    if not there:
        git(origin, "branch", "-D", BRANCH)
    copy = check_out(tmp_path, origin, commit)
    assert git(copy, "rev-parse", "HEAD") == commit
    # The build looks for the commit at which the fork left.
    assert git(copy, "log", "--format=%s") == "ours\nupstream"


def test_the_labs_git_server_gives_a_commit_whose_branch_was_deleted(tmp_path: Path) -> None:
    """So it is with a fork between the lock and the deploy; a request to pull keeps the commit."""
    merge(git_repositories(tmp_path / "cache", lambda line: None), tmp_path)
    fork = tmp_path / "vllm.git"
    commit = git(fork, "rev-parse", FORK_BRANCH)
    git(fork, "update-ref", "refs/pull/1/head", commit)
    git(fork, "branch", "-D", FORK_BRANCH)
    with GitServer(("127.0.0.1", 0), tmp_path, AccessLog(tmp_path / "log")) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"git://127.0.0.1:{server.server_address[1]}/vllm.git"
        copy = check_out(tmp_path, address, commit, FORK_BRANCH)
        server.shutdown()
        thread.join()
    assert git(copy, "rev-parse", "HEAD") == commit


def test_a_commit_that_the_origin_has_no_more_is_a_problem(tmp_path: Path, origin: Path) -> None:
    with pytest.raises(errors.Problem):
        check_out(tmp_path, origin, 40 * "a")
