"""The lab's container images: written without an engine, served from a copy."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from lab.core.service import advance
from lab.http.access_log import Request
from lab.images.image_content import LLAMA, TAGS, Tag, architectures, images, program_files
from lab.images.oci import Entry, Layer, layer_of_files, layer_of_tar, write_layout
from lab.images.registry import merge, parse_line

BASE = layer_of_tar(b"a base")


def read(folder: Path, descriptor: dict[str, str]) -> bytes:
    digest = descriptor["digest"].removeprefix("sha256:")
    data = (folder / "blobs" / "sha256" / digest).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    return data


def top(folder: Path) -> dict[str, str]:
    (descriptor,) = json.loads((folder / "index.json").read_text())["manifests"]
    return dict(descriptor)


def names(layer: Layer) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.data))) as archive:
        return set(archive.getnames())


def test_the_same_files_make_the_same_layer() -> None:
    files = [Entry("b/two", b"2", 0o755), Entry("a/one", b"1"), Entry("c", target="/a/one")]
    assert layer_of_files(files) == layer_of_files(list(reversed(files)))
    # The time in a gzip header would give every build another digest.
    assert layer_of_files(files).data[4:8] == bytes(4)
    assert names(layer_of_files(files)) == {"a", "a/one", "b", "b/two", "c"}


def test_a_layout_offers_an_image_for_each_architecture(tmp_path: Path) -> None:
    own, other = architectures()
    digest = write_layout(tmp_path / "layout", images(TAGS[0], BASE))
    described = top(tmp_path / "layout")
    assert described["digest"] == digest
    index = json.loads(read(tmp_path / "layout", described))
    found = {}
    for manifest in index["manifests"]:
        content = json.loads(read(tmp_path / "layout", manifest))
        config = json.loads(read(tmp_path / "layout", content["config"]))
        for layer, diff_id in zip(content["layers"], config["rootfs"]["diff_ids"], strict=True):
            tar = gzip.decompress(read(tmp_path / "layout", layer))
            assert f"sha256:{hashlib.sha256(tar).hexdigest()}" == diff_id
        found[config["architecture"]] = len(content["layers"])
    assert found == {own: 2, other: 1}


def test_the_image_for_a_refusal_is_one_manifest_of_the_wrong_architecture(tmp_path: Path) -> None:
    (tag,) = (tag for tag in TAGS if tag.foreign)
    write_layout(tmp_path / "layout", images(tag, BASE), indexed=False)
    manifest = json.loads(read(tmp_path / "layout", top(tmp_path / "layout")))
    config = json.loads(read(tmp_path / "layout", manifest["config"]))
    assert config["architecture"] == architectures()[1]


def test_the_tags_of_one_repository_differ_in_content() -> None:
    # Two of one program differ in what their configuration says of CUDA.
    contents = [
        (images(tag, BASE)[-1].layers[-1].diff_id, tag.cuda) for tag in TAGS if not tag.foreign
    ]
    assert len(set(contents)) == len(contents)


def test_an_engine_image_has_command_module_and_version() -> None:
    files = {entry.path: entry for entry in program_files(Tag("r", "t", "sglang", "0.5.23"))}
    packages = "usr/lib/python3/dist-packages"
    assert files["usr/local/bin/sglang"].mode == 0o755
    assert b"from standin.main import sglang_module" in (
        files[f"{packages}/sglang/launch_server.py"].content
    )
    assert b"Version: 0.5.23" in files[f"{packages}/sglang-0.5.23.dist-info/METADATA"].content


def test_llama_cpp_comes_from_its_base_without_a_stand_in() -> None:
    (tag,) = (tag for tag in TAGS if tag.program == LLAMA)
    own, _ = images(tag, BASE)
    assert own.layers[0] == BASE
    paths = {entry.path for entry in program_files(tag)}
    assert paths == {"etc/passwd", "etc/group", "etc/lockstep-standin"}


def storage(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name / ("data" if name.startswith("blob") else "link")
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return folder


def test_a_pushed_tag_changes_the_lab_and_not_the_cache(tmp_path: Path) -> None:
    cached = storage(tmp_path / "registry-1", blob="as built", tag="as built")
    copy = advance(tmp_path, "registry", cached, merge)
    (copy / "tag" / "link").write_text("another digest")
    assert (cached / "tag" / "link").read_text() == "as built"
    assert (copy / "blob" / "data").samefile(cached / "blob" / "data")


def test_new_content_moves_the_tag_and_keeps_the_older_image(tmp_path: Path) -> None:
    first = storage(tmp_path / "registry-1", blob1="first", blob="shared", tag="1")
    second = storage(tmp_path / "registry-2", blob2="second", blob="shared", tag="2")
    for content in (first, second):
        copy = advance(tmp_path, "registry", content, merge)
    found = {str(p.relative_to(copy)): p.read_text() for p in copy.rglob("*") if p.is_file()}
    assert found == {
        "blob/data": "shared",
        "blob1/data": "first",
        "blob2/data": "second",
        "tag/link": "2",
    }


def test_the_registry_s_own_log_line_is_understood() -> None:
    line = (
        '10.77.0.11 - - [21/Nov/2026:08:47:57 +0000] "GET /v2/a/b/blobs/sha256:12 HTTP/1.1" '
        '200 33642039 "" "docker/26.1.5"\n'
    )
    expected = ("10.77.0.11", "GET", "/v2/a/b/blobs/sha256:12", 200, 33642039)
    assert parse_line(line) == expected
    assert Request(0.0, *expected).sent == 33642039
    assert parse_line('time="2026-11-21" level=warning msg="No HTTP secret"\n') is None
