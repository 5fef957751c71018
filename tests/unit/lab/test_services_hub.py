"""The lab's Hugging Face endpoint, asked by the real ``huggingface_hub``."""

from __future__ import annotations

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
from lab_servers import running

from lab.http.access_log import AccessLog, log_path
from lab.hub import hub_store
from lab.hub.hub import ACCEPTED_TOKEN, HubServer

NAME = "lab/model"


FILES = {
    "README.md": b"---\nlicense: mit\n---\n",
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


def stored_repository(tmp_path: Path) -> hub_store.Repository:
    repository = hub_store.load(tmp_path / "root", NAME)
    assert repository
    return repository


def fetch(hub: str, folder: Path, **options: object) -> Path:
    arguments: dict[str, object] = {"endpoint": hub, "cache_dir": folder, "token": False}
    return Path(snapshot_download(NAME, **(arguments | options)))  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_snapshot_is_complete_and_named_by_its_commit(hub: str, tmp_path: Path) -> None:
    oldest, newest = stored_repository(tmp_path).revisions
    snapshot = fetch(hub, tmp_path / "cache")
    assert (snapshot.name, content(snapshot)) == (newest, FILES)
    old = fetch(hub, tmp_path / "cache", revision=oldest)
    assert (old.name, content(old)) == (oldest, {"README.md": b"old"})


def test_a_missing_repository_or_revision_is_named_as_missing(hub: str) -> None:
    api = HfApi(endpoint=hub, token=False)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("lab/none")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(NAME, revision="none")


def test_a_gated_repository_wants_the_token(hub: str, tmp_path: Path) -> None:
    repository = stored_repository(tmp_path)
    gated_repository = hub_store.Repository(
        repository.branches, repository.revisions, "mit", is_gated=True
    )
    hub_store.save(tmp_path / "root", NAME, gated_repository)
    with pytest.raises((GatedRepoError, LocalEntryNotFoundError)) as error:
        fetch(hub, tmp_path / "cache")
    assert "Gated" in repr(error.value) + repr(error.value.__cause__)
    snapshot = fetch(hub, tmp_path / "cache", token=ACCEPTED_TOKEN)
    assert content(snapshot) == FILES


def test_the_hub_tells_sizes_hashes_licence_and_history(hub: str) -> None:
    api = HfApi(endpoint=hub, token=False)
    info = api.model_info(NAME, files_metadata=True)
    assert info.card_data and info.card_data.license == "mit"
    files = {sibling.rfilename: sibling for sibling in info.siblings or []}
    assert {name: file.size for name, file in files.items()} == {
        name: len(data) for name, data in FILES.items()
    }
    weights = files["model.safetensors"].lfs
    assert weights and len(weights.sha256) == 64
    assert [branch.name for branch in api.list_repo_refs(NAME).branches] == ["main"]
    assert [commit.title for commit in api.list_repo_commits(NAME)] == ["Second", "First"]
