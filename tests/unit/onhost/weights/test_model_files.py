"""A model's files, whatever the way to them: links of the hub's cache, a folder, one file."""

import json

import pytest
from a_model import model
from onhost_fakes import host_root

from lockstep.onhost.weights import model_files

REVISION = "a" * 40


@pytest.fixture
def paths(tmp_path):
    return host_root(tmp_path / "root", {})


def test_files_of_the_hub_are_their_content_each_once(paths):
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
    served_model = model(weights=("org/name", "org/other", "org/name"))
    assert model_files.model_files(served_model, paths) == [blob]


def test_a_folder_a_file_and_all_parts_of_a_file_of_the_owner(paths):
    folder = paths.root / "models/m"
    (folder / "deep").mkdir(parents=True)
    parts = [f"m-0000{part}-of-00002.gguf" for part in (1, 2)]
    files = [folder / name for name in ("a.gguf", "deep/b.gguf", parts[0], "m-00001-of-00003.gguf")]
    files.append(folder / parts[1])
    for file in files:
        file.write_text("weights")
    for path, its_files in (
        ("/models/m", sorted(files)),
        ("/models/m/a.gguf", files[:1]),
        (f"/models/m/{parts[0]}", [folder / name for name in parts]),
    ):
        assert model_files.model_files(model(weights=(path,)), paths) == its_files


@pytest.mark.parametrize("text", [None, "{"])
def test_what_is_not_known_or_not_there_has_no_files(paths, text):
    if text:
        paths.weights_list.write_text(text)
    assert model_files.model_files(model(weights=("org/name", "/not/here")), paths) == []
