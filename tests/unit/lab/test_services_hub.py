"""The lab's Hugging Face endpoint, asked by the real ``huggingface_hub``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from lab_servers import ask, running

from lab.core.service import advance
from lab.http.access_log import AccessLog, log_path, requests, sent_bytes
from lab.hub import hub_store
from lab.hub.hub import ACCEPTED_TOKEN, HubServer

NAME = "lab/model"
#: Bytes that huggingface_hub collects before it writes them.
PIECE = 10 * 1024**2
FILES = {
    "README.md": b"---\nlicense: mit\n---\n",
    "config.json": b"{}",
    "folder/notes.txt": b"deep",
    "model.safetensors": bytes(range(256)) * 8000,
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    root = tmp_path / "root"
    hub_store.commit(root, NAME, {"README.md": b"old"}, "First", "2026-01-01T00:00:00.000Z")
    hub_store.commit(root, NAME, FILES, "Second", "2026-02-01T00:00:00.000Z", licence="mit")
    with running(HubServer(("127.0.0.1", 0), root, AccessLog(log_path(tmp_path, "hub")))) as at:
        yield f"http://{at}"


def fetch(hub: str, folder: Path, **options: object) -> Path:
    arguments: dict[str, object] = {"endpoint": hub, "cache_dir": folder, "token": False}
    return Path(snapshot_download(NAME, **(arguments | options)))  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_snapshot_is_complete_and_named_by_its_commit(hub: str, tmp_path: Path) -> None:
    snapshot = fetch(hub, tmp_path / "cache")
    assert content(snapshot) == FILES
    repository = hub_store.load(tmp_path / "root", NAME)
    assert repository and snapshot.name == repository.branches["main"]


def test_an_older_revision_can_be_asked_for_by_commit(hub: str, tmp_path: Path) -> None:
    repository = hub_store.load(tmp_path / "root", NAME)
    assert repository
    oldest = next(iter(repository.revisions))
    assert content(fetch(hub, tmp_path / "cache", revision=oldest)) == {"README.md": b"old"}


def test_only_the_wanted_files_are_sent(hub: str, tmp_path: Path) -> None:
    fetch(hub, tmp_path / "cache", allow_patterns=["config.json"])
    weights = sent_bytes(tmp_path, "hub", lambda request: "safetensors" in request.path)
    assert weights == 0


def test_a_complete_snapshot_is_not_sent_again(hub: str, tmp_path: Path) -> None:
    fetch(hub, tmp_path / "cache")
    before = sent_bytes(tmp_path, "hub", lambda request: "/resolve/" in request.path)
    fetch(hub, tmp_path / "cache")
    after = sent_bytes(tmp_path, "hub", lambda request: "/resolve/" in request.path)
    assert (before, after) == (sum(map(len, FILES.values())),) * 2


def test_a_cut_download_goes_on_where_it_was(hub: str, tmp_path: Path) -> None:
    # What had come of the third piece is lost.
    weights = random.Random(1).randbytes(25_000_000)
    files = {"model.safetensors": weights}
    hub_store.commit(tmp_path / "root", NAME, files, "Third", "2026-03-01T00:00:00.000Z")
    ask(f"{hub}/-/faults", [{"match": "safetensors$", "drop_after": 22_000_000, "times": 2}])
    assert content(fetch(hub, tmp_path / "cache")) == files
    fetched = [r for r in requests(tmp_path, "hub") if r.method == "GET" and "/resolve/" in r.path]
    assert [(r.status, r.sent) for r in fetched] == [
        (200, 22_000_000),
        (206, 25_000_000 - 2 * PIECE),
    ]


def test_a_missing_repository_is_named_as_missing(hub: str) -> None:
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub, token=False).model_info("lab/none")


def test_a_missing_revision_is_named_as_missing(hub: str) -> None:
    with pytest.raises(RevisionNotFoundError):
        HfApi(endpoint=hub, token=False).model_info(NAME, revision="none")


def test_a_gated_repository_wants_the_token(hub: str, tmp_path: Path) -> None:
    repository = hub_store.load(tmp_path / "root", NAME)
    assert repository
    gated = hub_store.Repository(repository.branches, repository.revisions, "mit", gated=True)
    hub_store.save(tmp_path / "root", NAME, gated)
    with pytest.raises((GatedRepoError, LocalEntryNotFoundError)) as refused:
        fetch(hub, tmp_path / "cache")
    assert "Gated" in repr(refused.value) + repr(refused.value.__cause__)
    snapshot = fetch(hub, tmp_path / "cache", token=ACCEPTED_TOKEN)
    assert content(snapshot) == FILES


def test_the_hub_tells_sizes_hashes_and_licence(hub: str) -> None:
    info = HfApi(endpoint=hub, token=False).model_info(NAME, files_metadata=True)
    assert info.card_data and info.card_data.license == "mit"
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or []}
    assert sizes == {name: len(data) for name, data in FILES.items()}
    (weights,) = (s for s in info.siblings or [] if s.rfilename == "model.safetensors")
    assert weights.lfs and len(weights.lfs.sha256) == 64


def test_branches_and_history_can_be_listed(hub: str) -> None:
    api = HfApi(endpoint=hub, token=False)
    assert [branch.name for branch in api.list_repo_refs(NAME).branches] == ["main"]
    assert [commit.title for commit in api.list_repo_commits(NAME)] == ["Second", "First"]


def test_the_lab_changes_its_own_copy_and_not_the_cache(tmp_path: Path) -> None:
    cached = tmp_path / "hub-1"
    hub_store.commit(cached, NAME, {"a": b"1"}, "First", "2026-01-01T00:00:00.000Z")
    before = (cached / NAME / "repository.json").read_text()
    copy = advance(tmp_path, "hub", cached, hub_store.merge)
    commit = hub_store.commit(copy, NAME, {"a": b"2"}, "Second", "2026-02-01T00:00:00.000Z")
    again = advance(tmp_path, "hub", cached, hub_store.merge)
    changed = hub_store.load(again, NAME)
    assert changed and changed.branches["main"] == commit
    assert (cached / NAME / "repository.json").read_text() == before


def test_a_revision_that_new_content_no_longer_has_is_still_served(tmp_path: Path) -> None:
    commits = []
    for number in (1, 2):
        cached = tmp_path / f"hub-{number}"
        files = {"a": b"%d" % number}
        date = f"2026-0{number}-01T00:00:00.000Z"
        commits.append(hub_store.commit(cached, NAME, files, "Only", date))
        copy = advance(tmp_path, "hub", cached, hub_store.merge)
    with running(HubServer(("127.0.0.1", 0), copy, AccessLog(log_path(tmp_path, "hub")))) as at:
        older = fetch(f"http://{at}", tmp_path / "cache", revision=commits[0])
        newest = fetch(f"http://{at}", tmp_path / "cache")
    assert (content(older), content(newest)) == ({"a": b"1"}, {"a": b"2"})
