"""A model's files, whatever the way to them: links of the hub's cache, a folder, one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from a_model import model
from onhost_fakes import host_root

from lockstep.onhost.core import layout
from lockstep.onhost.weights import model_files

REVISION = "a" * 40


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return host_root(tmp_path / "root", {})


def write_spec(paths: layout.Paths) -> Path:
    """A checkpoint of one shard in the hub's cache, and its list; returns the shard's blob."""
    hub = paths.root / "data/hub"
    repository = hub / "models--org--name"
    snapshot, blob = repository / "snapshots" / REVISION, repository / "blobs" / ("b" * 64)
    for folder in (snapshot, blob.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(b"weights")
    for name in ("a.safetensors", "the-same.safetensors"):
        (snapshot / name).symlink_to(blob)
    file = {"path": "a.safetensors", "size": 7, "sha256": "b" * 64}
    part = {"model": "org/name", "revision": REVISION, "files": [file]}
    paths.weights_list.write_text(json.dumps({"cache_dir": str(hub), "repositories": [part]}))
    return blob


def test_files_of_the_hub_are_their_content_each_once(paths: layout.Paths) -> None:
    blob = write_spec(paths)
    served_model = model(weights=("org/name", "org/other", "org/name"))
    assert model_files.model_files(served_model, paths) == [blob]


def test_a_folder_and_a_file_of_the_owner(paths: layout.Paths) -> None:
    folder = paths.root / "models/m"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.gguf", "deep/b.gguf"):
        (folder / name).write_text("weights")
    files = [folder / "a.gguf", folder / "deep/b.gguf"]
    assert model_files.model_files(model(weights=("/models/m",)), paths) == files
    assert model_files.model_files(model(weights=("/models/m/a.gguf",)), paths) == files[:1]


def test_a_file_in_parts_is_all_of_its_parts(paths: layout.Paths) -> None:
    folder = paths.root / "models"
    folder.mkdir()
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00003.gguf", "m.gguf"]
    for name in names:
        (folder / name).write_text("weights")
    files = model_files.model_files(model(weights=(f"/models/{names[0]}",)), paths)
    assert files == [folder / name for name in names[:2]]


@pytest.mark.parametrize("text", [None, "{"])
def test_what_is_not_known_or_not_there_has_no_files(paths: layout.Paths, text: str) -> None:
    if text:
        paths.weights_list.write_text(text)
    assert model_files.model_files(model(weights=("org/name", "/not/here")), paths) == []
