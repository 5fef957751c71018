"""An image's manifest, configuration and compressed layers as files named by their hash.

They are kept after Docker has them: only these bytes have the digests of the pin, and a Spark that
lacks the image can copy them. Docker's own store has forgotten them (what it can give is unpacked).
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.onhost.core import file_lock
from lockstep.onhost.core.progress import Progress
from lockstep.onhost.fetch import claims, content, download, peer_client
from lockstep.onhost.images import registry

#: Of a manifest or a configuration; real ones are a few kilobytes.
_LARGEST_JSON = 16 * 1024 * 1024


class Blob(NamedTuple):
    """A blob by its hash (64 hex digits), with its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """What an image is made of."""

    media_type: str
    config: Blob
    layers: tuple[Blob, ...]

    @property
    def blobs(self) -> list[Blob]:
        """Configuration and layers, each once."""
        return list(dict.fromkeys((self.config, *self.layers)))


def parse(text: bytes) -> Manifest:
    """A manifest of one platform's image. ValueError when it is anything else."""
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("layers"), list):
        raise ValueError("not the manifest of one image")
    media_type = str(data.get("mediaType") or registry.MANIFESTS[0])
    try:
        return Manifest(media_type, _blob(data["config"]), tuple(map(_blob, data["layers"])))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a manifest without {error}") from error


def _blob(entry: dict[str, Any]) -> Blob:
    algorithm, _, name = str(entry["digest"]).partition(":")
    if algorithm != "sha256" or not content.NAME.fullmatch(name):
        raise ValueError(f"digest {entry['digest']!r}")
    return Blob(name, int(entry["size"]))


class Store:
    """Fills the folder: from peers, else from the registry, several blobs at a time."""

    def __init__(
        self,
        folder: Path,
        origin: registry.Registry,
        copier: peer_client.Copier,
        claim: claims.Claim,
    ) -> None:
        self._folder = folder
        self._origin = origin
        self._copier = copier
        self._claim = claim

    def manifest(self, name: str) -> Manifest:
        """The manifest of that hash. ValueError when it is none."""
        path = self._folder / name
        if not path.exists():
            # Peers see it in its place only when they would be told to wait for its layers too.
            apart = self._folder / "new" / name
            self._bring("manifests", Blob(name, 0), None, apart)
            self._claim.add(blob.name for blob in parse(read_json(apart)).blobs)
            apart.replace(path)
        found = parse(read_json(path))
        self._claim.add(blob.name for blob in found.blobs)
        return found

    def platform(self, manifest: Manifest) -> str:
        """`linux/arm64`, from the image's configuration."""
        self._bring("blobs", manifest.config, manifest.config.size)
        config = json.loads(read_json(self._folder / manifest.config.name))
        return f"{config.get('os')}/{config.get('architecture')}"

    def fill(self, manifest: Manifest) -> None:
        """Everything that is not here yet, large blobs first."""
        order = sorted(manifest.blobs, key=lambda blob: -blob.size)
        download.several(lambda blob: self._bring("blobs", blob, blob.size), order)

    def progress(self, what: str, manifest: Manifest) -> str:
        """How much of an image's layers is here, and where the rest comes from."""
        paths = [self._folder / blob.name for blob in manifest.layers]
        whole, here = sum(path.exists() for path in paths), sum(map(content.begun, paths))
        total = sum(blob.size for blob in manifest.layers)
        source = self._copier.source(what.partition(" ")[2].partition("/")[0])
        return str(Progress(what, f"{whole} of {len(paths)} layers", here, total, source))

    def _bring(self, kind: str, blob: Blob, size: int | None, target: Path | None = None) -> None:
        path = target or self._folder / blob.name
        with file_lock.held(self._folder / ".locks" / blob.name):
            if path.exists() and size in (None, path.stat().st_size):
                return
            if self._copier.bring(blob.name, size, path):
                return
            digest = f"sha256:{blob.name}"
            try:
                download.download(
                    lambda: self._origin.source(kind, digest, size), path, name=blob.name
                )
            except urllib.error.HTTPError as error:
                raise registry.Refused(registry.meaning(error)) from error


def forget(folder: Path, name: str) -> None:
    """Remove a manifest from the store, and what no other manifest there needs."""
    for path in alone(folder, name):
        path.unlink(missing_ok=True)


def alone(folder: Path, name: str) -> list[Path]:
    """A manifest of the store and what no other manifest there needs."""
    kept: set[str] = set()
    for path in _files(folder):
        if path.name != name:
            with contextlib.suppress(ValueError, OSError):
                kept |= {path.name, *(blob.name for blob in parse(read_json(path)).blobs)}
    return [path for path in _files(folder) if path.name.removesuffix(content.PARTIAL) not in kept]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("[0-9a-f]*") if path.is_file()]


def read_json(path: Path) -> bytes:
    """A small file. ValueError when it is none."""
    if path.stat().st_size > _LARGEST_JSON:
        raise ValueError(f"{path.stat().st_size} bytes")
    return path.read_bytes()
