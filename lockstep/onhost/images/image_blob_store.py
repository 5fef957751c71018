"""Storage of an image's manifest, configuration and compressed layers as files named by hash.

They are kept after Docker has them: only these bytes have the digests of the pin, and a Spark that
lacks the image can copy them. Docker's own store can only give unpacked layers.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.onhost.core import file_lock
from lockstep.onhost.fetch import announced_fetches, blob_files, peer_client, resumable_download
from lockstep.onhost.fetch.download_progress import Progress
from lockstep.onhost.images import registry_client

#: For a manifest or a configuration; real ones are a few kilobytes.
_LARGEST_JSON = 16 * 1024 * 1024


class Blob(NamedTuple):
    """A blob by its hash (64 hex digits), with its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """The configuration and layers of an image."""

    media_type: str
    config: Blob
    layers: tuple[Blob, ...]

    @property
    def blobs(self) -> list[Blob]:
        """Configuration and layers, each once."""
        return list(dict.fromkeys((self.config, *self.layers)))


def parse_manifest(text: bytes) -> Manifest:
    """Parse the manifest of one platform's image; raise ValueError for anything else."""
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("layers"), list):
        raise ValueError("not the manifest of one image")
    media_type = str(data.get("mediaType") or registry_client.MANIFESTS[0])
    try:
        return Manifest(
            media_type, _blob_of_entry(data["config"]), tuple(map(_blob_of_entry, data["layers"]))
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a manifest without {error}") from error


def _blob_of_entry(entry: dict[str, Any]) -> Blob:
    algorithm, _, name = str(entry["digest"]).partition(":")
    if algorithm != "sha256" or not blob_files.NAME.fullmatch(name):
        raise ValueError(f"digest {entry['digest']!r}")
    return Blob(name, int(entry["size"]))


class ImageStore:
    """Download of images into the store: from peers, else from the registry, in parallel."""

    def __init__(
        self,
        folder: Path,
        origin: registry_client.Registry,
        copier: peer_client.Copier,
        claim: announced_fetches.Claim,
    ) -> None:
        self._folder = folder
        self._origin = origin
        self._copier = copier
        self._claim = claim

    def fetch_manifest(self, name: str) -> Manifest:
        """Return the manifest of a hash; raise ValueError if it is invalid."""
        path = self._folder / name
        if not path.exists():
            # Peers that saw it in its place would wait for its layers too, so it moves there later.
            apart = self._folder / "new" / name
            self._fetch_blob("manifests", Blob(name, 0), None, apart)
            self._claim.add(blob.name for blob in parse_manifest(read_small_file(apart)).blobs)
            apart.replace(path)
        image_manifest = parse_manifest(read_small_file(path))
        self._claim.add(blob.name for blob in image_manifest.blobs)
        return image_manifest

    def platform(self, manifest: Manifest) -> str:
        """Return the platform in the image's configuration, such as `linux/arm64`."""
        self._fetch_blob("blobs", manifest.config, manifest.config.size)
        config = json.loads(read_small_file(self._folder / manifest.config.name))
        return f"{config.get('os')}/{config.get('architecture')}"

    def fill(self, manifest: Manifest) -> None:
        """Download all missing blobs, large ones first."""
        order = sorted(manifest.blobs, key=lambda blob: -blob.size)
        resumable_download.work_through(
            lambda blob: self._fetch_blob("blobs", blob, blob.size), order
        )

    def progress(self, label: str, manifest: Manifest) -> str:
        """Describe how much of an image's layers is here, and the source of the rest."""
        paths = [self._folder / blob.name for blob in manifest.layers]
        whole, present_bytes = (
            sum(path.exists() for path in paths),
            sum(map(blob_files.bytes_begun, paths)),
        )
        total = sum(blob.size for blob in manifest.layers)
        source = self._copier.source_text(label.partition(" ")[2].partition("/")[0])
        return str(Progress(label, f"{whole} of {len(paths)} layers", present_bytes, total, source))

    def _fetch_blob(
        self, kind: str, blob: Blob, size: int | None, target: Path | None = None
    ) -> None:
        path = target or self._folder / blob.name
        with file_lock.hold_lock(self._folder / ".locks" / blob.name):
            if path.exists() and size in (None, path.stat().st_size):
                return
            if self._copier.copy_from_peer(blob.name, size, path):
                return
            digest = f"sha256:{blob.name}"
            try:
                resumable_download.download(
                    lambda: self._origin.download_source(kind, digest, size), path, name=blob.name
                )
            except urllib.error.HTTPError as error:
                raise registry_client.RegistryRefusal(registry_client.status_text(error)) from error


def remove_image(folder: Path, name: str) -> None:
    """Remove a manifest from the store, and the blobs that no other manifest there needs."""
    for path in unshared_files(folder, name):
        path.unlink(missing_ok=True)


def unshared_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a manifest and of the blobs that no other manifest there needs."""
    kept_blobs: set[str] = set()
    for path in _files(folder):
        if path.name != name:
            with contextlib.suppress(ValueError, OSError):
                kept_blobs |= {
                    path.name,
                    *(blob.name for blob in parse_manifest(read_small_file(path)).blobs),
                }
    return [
        path
        for path in _files(folder)
        if path.name.removesuffix(blob_files.PARTIAL) not in kept_blobs
    ]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("[0-9a-f]*") if path.is_file()]


def read_small_file(path: Path) -> bytes:
    """Read a small file; raise ValueError if it is too large."""
    if path.stat().st_size > _LARGEST_JSON:
        raise ValueError(f"{path.stat().st_size} bytes")
    return path.read_bytes()
