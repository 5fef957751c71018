"""Where a model's file comes from: a peer that has it, else the hub."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lockstep.onhost.core import errors
from lockstep.onhost.fetch import claims, peer_client
from lockstep.onhost.fetch import download as resume
from lockstep.onhost.weights import hub, weights_spec


class Sources:
    """Peers first, then the hub."""

    def __init__(
        self,
        spec: weights_spec.Spec,
        origin: hub.Hub,
        copier: peer_client.Copier,
        claim: claims.Claim,
    ) -> None:
        self._spec = spec
        self._origin = origin
        self._copier = copier
        self._claim = claim

    def download(self, model: str, revision: str, file: weights_spec.File) -> bool:
        """Put one file into the cache; True where its hash was seen to be right on the way."""
        if file.name and self._from_peer(model, revision, file.path, file.name, file.size):
            return True
        self._origin.download(model, revision, file)
        return False

    def note(self) -> str:
        """Whom somebody waits for."""
        return self._copier.note()

    def beat(self) -> None:
        """Tell peers that wait that this host is still at it."""
        self._claim.beat()

    def _from_peer(self, model: str, revision: str, path: str, name: str, size: int | None) -> bool:
        repository = self._spec.repository_folder(model)
        blob = repository / "blobs" / name
        pointer = self._spec.snapshot(model, revision) / path
        if pointer.exists() or blob.exists():
            return False
        try:
            with resume.locked(lock_of(self._spec, blob)):
                if not blob.exists() and not self._copier.bring(name, size, blob):
                    return False
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise hub.disk_full(f"{model}@{revision[:12]} {path}", self._spec) from error
            raise errors.Problem(f"{blob}: {error.strerror or error}") from error
        link(pointer, blob)
        return True


def lock_of(spec: weights_spec.Spec, blob: Path) -> Path:
    """The lock that huggingface_hub takes for a blob."""
    return spec.cache_dir / ".locks" / blob.parent.parent.name / f"{blob.name}.lock"


def link(pointer: Path, blob: Path) -> None:
    """Make a snapshot's file point at its blob."""
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(os.path.relpath(blob, pointer.parent))
