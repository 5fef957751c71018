"""Writes container images as OCI layouts, without a container engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CREATED = "2026-03-01T12:00:00Z"
_EPOCH = 1772366400

#: What container engines call the architectures that ``uname -m`` names.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """A compressed layer: its bytes, and the digest of the uncompressed tar."""

    data: bytes
    diff_id: str


@dataclass(frozen=True)
class Image:
    """One image for one architecture, as ``docker inspect`` will show it."""

    architecture: str
    layers: tuple[Layer, ...]
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    working_directory: str = "/"
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, object]:
        """The image's configuration, by the OCI specification."""
        diff_ids = [layer.diff_id for layer in self.layers]
        return {
            "architecture": self.architecture,
            "os": "linux",
            "created": _CREATED,
            "config": {
                "Entrypoint": list(self.entrypoint) or None,
                "Cmd": list(self.command),
                "Env": list(self.environment),
                "WorkingDir": self.working_directory,
                "ExposedPorts": {port: {} for port in self.ports},
                "Labels": dict(self.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created": _CREATED, "created_by": "lockstep lab"} for _ in diff_ids],
        }


@dataclass(frozen=True)
class Entry:
    """One file of a layer; ``target`` makes it a symbolic link instead."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    target: str | None = None


def layer_of_tar(tar: bytes) -> Layer:
    """Compress a layer; the same tar gives the same bytes."""
    digest = hashlib.sha256(tar).hexdigest()
    return Layer(gzip.compress(tar, compresslevel=4, mtime=0), f"sha256:{digest}")


def layer_of_files(entries: Sequence[Entry]) -> Layer:
    """A layer of a few files, with their folders, all owned by root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = {folder for entry in entries for folder in Path(entry.path).parents}
        for folder in sorted(folders - {Path()}):
            archive.addfile(_member(str(folder), 0o755, tarfile.DIRTYPE))
        for entry in sorted(entries, key=lambda entry: entry.path):
            kind = tarfile.REGTYPE if entry.target is None else tarfile.SYMTYPE
            member = _member(entry.path, entry.mode, kind)
            member.linkname = entry.target or ""
            member.size = len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content))
    return layer_of_tar(buffer.getvalue())


def _member(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.mode, member.type, member.mtime = mode, kind, _EPOCH
    return member


def write_layout(folder: Path, images: Sequence[Image], *, has_index: bool = True) -> str:
    """Write an image for each architecture and the index of them; returns the index's digest.

    Without ``has_index`` the one image stands alone, as images of one architecture often do.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifests = []
    for image in images:
        layers = [_blob(blobs, layer.data, _LAYER) for layer in image.layers]
        config = _blob(blobs, json.dumps(image.config()).encode(), _CONFIG)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": config,
            "layers": layers,
        }
        platform = {"architecture": image.architecture, "os": "linux"}
        descriptor = _blob(blobs, json.dumps(manifest).encode(), _MANIFEST)
        manifests.append({**descriptor, "platform": platform})
    descriptor = manifests[0]
    if has_index:
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
        descriptor = _blob(blobs, json.dumps(index).encode(), _INDEX)
    top = {"schemaVersion": 2, "manifests": [descriptor]}
    (folder / "index.json").write_text(json.dumps(top))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(descriptor["digest"])


def _blob(folder: Path, data: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    (folder / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
