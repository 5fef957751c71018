"""The lab's git server: the same commits everywhere, shallow clones, and bytes counted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_servers import running, until

from lab.core.service import advance
from lab.git.git_content import FORK_BRANCH, _fork, _publish, git
from lab.git.git_server import GitServer, merge
from lab.http.access_log import AccessLog, log_path, requests


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    base = tmp_path / "base"
    base.mkdir()
    _publish(_fork(tmp_path / "tree"), base / "vllm.git")
    with running(GitServer(("127.0.0.1", 0), base, AccessLog(log_path(tmp_path, "git")))) as at:
        yield f"git://{at}/vllm.git"


def test_the_fork_has_the_same_commits_on_every_machine(tmp_path: Path) -> None:
    commits = set()
    for name in ("one", "two"):
        tree = _fork(tmp_path / name)
        commits.add(git("rev-parse", "main", FORK_BRANCH, cwd=tree))
    assert len(commits) == 1
    dates = git("log", "--all", "--format=%aI %cI", cwd=tree).splitlines()
    assert set(dates) == {"2026-03-01T12:00:00+00:00 2026-03-01T12:00:00+00:00"}


def test_a_branch_can_be_cloned_shallow(server: str, tmp_path: Path) -> None:
    git("clone", "-q", "--depth=1", f"--branch={FORK_BRANCH}", server, "clone", cwd=tmp_path)
    clone = tmp_path / "clone"
    assert git("rev-list", "--count", "HEAD", cwd=clone) == "1"
    marker = (clone / "src" / "vllm_fork" / "__init__.py").read_text()
    assert f'BRANCH = "{FORK_BRANCH}"' in marker


def test_a_commit_that_no_branch_points_at_can_be_fetched(server: str, tmp_path: Path) -> None:
    older = git("rev-parse", "main~1", cwd=tmp_path / "tree")
    git("init", "-q", "clone", cwd=tmp_path)
    # Version 2 of the protocol gives any commit; a server must allow it to older clients.
    old_protocol = ("-c", "protocol.version=0")
    git(*old_protocol, "fetch", "-q", "--depth=1", server, older, cwd=tmp_path / "clone")
    assert git("rev-parse", "FETCH_HEAD", cwd=tmp_path / "clone") == older


def test_a_missing_repository_is_an_error_not_a_hang(server: str, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        git("ls-remote", server.replace("vllm", "none"), cwd=tmp_path)


def test_a_fetch_is_logged_with_its_bytes(server: str, tmp_path: Path) -> None:
    git("clone", "-q", server, "clone", cwd=tmp_path)
    (entry,) = until(lambda: list(requests(tmp_path, "git")), "the log line")
    assert (entry.method, entry.path) == ("git-upload-pack", "/vllm.git")
    assert entry.sent > 1000


def test_a_commit_that_new_content_no_longer_has_is_still_served(tmp_path: Path) -> None:
    trees = [_fork(tmp_path / name) for name in ("old", "new")]
    git("commit", "-q", "--amend", "--message=Rewritten", cwd=trees[1])
    for number, tree in enumerate(trees):
        content = tmp_path / f"git-{number}"
        content.mkdir()
        _publish(tree, content / "vllm.git")
        copy = advance(tmp_path, "git", content, merge)
    older, newest = (git("rev-parse", "main", cwd=tree) for tree in trees)
    assert older != newest
    with running(GitServer(("127.0.0.1", 0), copy, AccessLog(log_path(tmp_path, "git")))) as at:
        git("clone", "-q", f"git://{at}/vllm.git", "clone", cwd=tmp_path)
        assert git("rev-parse", "HEAD", cwd=tmp_path / "clone") == newest
        git("fetch", "-q", "origin", older, cwd=tmp_path / "clone")
