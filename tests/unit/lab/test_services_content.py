"""Content of the lab's servers stays: a lab changes its own copy, and keeps pinned content."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import snapshot_download
from lab_servers import running

from lab.core.service import advance
from lab.git.git_content import FORK_BRANCH, _fork, _publish, git
from lab.git.git_server import GitServer
from lab.git.git_server import merge as merge_git
from lab.http.access_log import AccessLog, log_path, requests
from lab.hub import hub_store
from lab.hub.hub import HubServer
from lab.images.image_content import TAGS, images
from lab.images.oci import layer_of_tar
from lab.images.registry import merge as merge_images
from lab.images.registry import parse_line

NAME = "lab/model"


def storage(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name / ("data" if name.startswith("blob") else "link")
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return folder


def test_a_pushed_tag_changes_the_lab_and_not_the_cache_and_new_content_moves_it(
    tmp_path: Path,
) -> None:
    first = storage(tmp_path / "registry-1", blob1="first", blob="shared", tag="1")
    second = storage(tmp_path / "registry-2", blob2="second", blob="shared", tag="2")
    copy = advance(tmp_path, "registry", first, merge_images)
    (copy / "tag" / "link").write_text("another digest")
    assert (first / "tag" / "link").read_text() == "1"
    assert (copy / "blob" / "data").samefile(first / "blob" / "data")
    copy = advance(tmp_path, "registry", second, merge_images)
    texts = {str(p.relative_to(copy)): p.read_text() for p in copy.rglob("*") if p.is_file()}
    assert texts == {
        "blob/data": "shared",
        "blob1/data": "first",
        "blob2/data": "second",
        "tag/link": "2",
    }


def test_the_tags_of_one_repository_differ_in_content() -> None:
    # Two of one program differ in what their configuration says of CUDA.
    base = layer_of_tar(b"a base")
    contents = [
        (images(tag, base)[-1].layers[-1].diff_id, tag.cuda) for tag in TAGS if not tag.foreign
    ]
    assert len(set(contents)) == len(contents)


def test_the_registry_s_own_log_line_is_understood() -> None:
    line = (
        '10.77.0.11 - - [21/Nov/2026:08:47:57 +0000] "GET /v2/a/b/blobs/sha256:12 HTTP/1.1" '
        '200 33642039 "" "docker/26.1.5"\n'
    )
    assert parse_line(line) == ("10.77.0.11", "GET", "/v2/a/b/blobs/sha256:12", 200, 33642039)
    assert parse_line('time="2026-11-21" level=warning msg="No HTTP secret"\n') is None


def test_a_revision_that_new_content_no_longer_has_is_still_served(tmp_path: Path) -> None:
    commits = []
    for number in (1, 2):
        target_path = tmp_path / f"hub-{number}"
        date = f"2026-0{number}-01T00:00:00.000Z"
        commits.append(hub_store.commit(target_path, NAME, {"a": b"%d" % number}, "Only", date))
        copy = advance(tmp_path, "hub", target_path, hub_store.merge)
    with running(HubServer(("127.0.0.1", 0), copy, AccessLog(log_path(tmp_path, "hub")))) as at:
        for number, commit in enumerate(commits, 1):
            folder = snapshot_download(
                NAME, revision=commit, endpoint=f"http://{at}", cache_dir=tmp_path, token=False
            )
            assert Path(folder, "a").read_text() == str(number)


def test_a_lab_commits_to_its_own_copy_of_the_hub(tmp_path: Path) -> None:
    target_path = tmp_path / "hub-1"
    hub_store.commit(target_path, NAME, {"a": b"1"}, "First", "2026-01-01T00:00:00.000Z")
    earlier_text = (target_path / NAME / "repository.json").read_text()
    copy = advance(tmp_path, "hub", target_path, hub_store.merge)
    commit = hub_store.commit(copy, NAME, {"a": b"2"}, "Second", "2026-02-01T00:00:00.000Z")
    later_repository = hub_store.load(advance(tmp_path, "hub", target_path, hub_store.merge), NAME)
    assert later_repository and later_repository.branches["main"] == commit
    assert (target_path / NAME / "repository.json").read_text() == earlier_text


def test_the_fork_has_the_same_commits_on_every_machine(tmp_path: Path) -> None:
    commits = {
        git("rev-parse", "main", FORK_BRANCH, cwd=_fork(tmp_path / name)) for name in ("a", "b")
    }
    assert len(commits) == 1


# Version 2 of the protocol gives any commit; a server must allow it to older clients.
@pytest.mark.parametrize("protocol", [0, 2])
def test_a_commit_that_new_content_no_longer_has_is_still_served(
    tmp_path: Path, protocol: int
) -> None:
    trees = [_fork(tmp_path / name) for name in ("old", "new")]
    git("commit", "-q", "--amend", "--message=Rewritten", cwd=trees[1])
    for number, tree in enumerate(trees):
        content = tmp_path / f"git-{number}"
        content.mkdir()
        _publish(tree, content / "vllm.git")
        copy = advance(tmp_path, "git", content, merge_git)
    older, newest = (git("rev-parse", "main", cwd=tree) for tree in trees)
    assert older != newest
    with running(GitServer(("127.0.0.1", 0), copy, AccessLog(log_path(tmp_path, "git")))) as at:
        git("init", "-q", "clone", cwd=tmp_path)
        for commit in (newest, older):
            fetch_words = ("-c", f"protocol.version={protocol}", "fetch", "-q", "--depth=1")
            git(*fetch_words, f"git://{at}/vllm.git", commit, cwd=tmp_path / "clone")
            assert git("rev-parse", "FETCH_HEAD", cwd=tmp_path / "clone") == commit
    assert {(request.method, request.path) for request in requests(tmp_path, "git")} == {
        ("git-upload-pack", "/vllm.git")
    }
