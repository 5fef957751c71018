"""The files of each repository that a host must have, and their paths in the hub's cache.

Shared by the download (`fetch_weights`), the readers and the deploy.

A repository that lacks files may borrow them from another one, for example a tokenizer from the
base model's. The hub's snapshot stays untouched: a later check of the cache must find it as
upstream made it. Instead a merged folder

    <cache_dir>/../lockstep-merged/ORG--NAME/REVISION/

holds one relative symbolic link per file of both. An engine gets that folder as its local model
path; because the links are relative, it works inside a container that mounts the parent of
cache_dir under another path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from lockstep.onhost.core import schema

#: Bytes. A configuration has a few thousand, one that names its layers some hundred thousand, a
#: tokenizer several million.
SMALL = 2 * 2**20
DEFAULT_ENDPOINT = "https://huggingface.co"
_Model = Annotated[
    str, schema.pattern_rule(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", "is not ORG/NAME", "")
]
_Commit = Annotated[
    str, schema.pattern_rule("[0-9a-f]{40}", "is not a commit of 40 hex digits", "")
]
_Hash = Annotated[str, schema.pattern_rule("[0-9a-f]{64}", "is not 64 hex digits", "")]
_Blob = Annotated[str, schema.pattern_rule("[0-9a-f]{40}", "is not 40 hex digits", "")]
_Inside = schema.Rule(
    "is not a path inside the repository",
    lambda path: path and not path.startswith("/") and ".." not in path.split("/"),
)


class WeightsSpecError(ValueError):
    """An unusable specification; `str()` names the key, the value found and those allowed."""


@dataclass(frozen=True)
class File:
    """One file: path inside the repository, size in bytes (None if unknown), and its hash.

    LFS files (the weights) have `sha256`, all others `blob`, git's own id.
    """

    path: Annotated[str, _Inside]
    size: Annotated[int, schema.Rule("is no number of bytes", lambda size: size >= 0)] | None = None
    sha256: _Hash | None = None
    blob: _Blob | None = None

    @property
    def content_hash(self) -> str:
        """Hash by which the hub's cache and every peer know the content."""
        return self.sha256 or self.blob or ""


_HASHED = schema.Rule(
    "has no hash", lambda file: file.content_hash, "sha256 of a file in LFS, blob of any other"
)


@dataclass(frozen=True)
class WeightsPart:
    """Files of one model at a pinned revision."""

    model: _Model
    revision: _Commit
    files: tuple[Annotated[File, _HASHED], ...]

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)


@dataclass(frozen=True)
class RepositoryPart(WeightsPart):
    """One model with all files that the host must have, some of them from other repositories.

    `refs` are names (`main`) that an engine without `--revision` resolves offline.
    """

    borrow: tuple[WeightsPart, ...] = ()
    refs: tuple[str, ...] = ()

    @property
    def own_and_borrowed_parts(self) -> tuple[WeightsPart, ...]:
        """Its own files, then those that it borrows from each repository."""
        return (WeightsPart(self.model, self.revision, self.files), *self.borrow)


@dataclass(frozen=True)
class Spec:
    """Files that one host needs; `endpoint` is their source, None for the public hub."""

    cache_dir: Annotated[Path, schema.Rule("must be an absolute path", Path.is_absolute)]
    repositories: tuple[RepositoryPart, ...]
    endpoint: str | None = None

    @property
    def hub_url(self) -> str:
        """The address of the hub, perhaps with a login."""
        return (self.endpoint or DEFAULT_ENDPOINT).rstrip("/")

    def small_files_spec(self) -> Spec:
        """Return its small files alone, which an engine's code reads before the weights.

        Merged folders and names are left out, because they promise a complete checkpoint.
        """
        few = [
            RepositoryPart(part.model, part.revision, tuple(filter(_is_small, part.files)))
            for repository in self.repositories
            for part in repository.own_and_borrowed_parts
        ]
        return replace(self, repositories=tuple(few))

    @property
    def stamps_folder(self) -> Path:
        """Folder of the stamps, which record the files that were read and found right."""
        return self.cache_dir.parent / "lockstep-verified"

    def stamp_path(self, part: WeightsPart) -> Path:
        """Return the stamp file of one repository: {path: {size, mtime_ns, and sha256 or blob}}."""
        return self.stamps_folder / f"{_folder_name(part.model)}@{part.revision}.json"

    def repository_folder(self, model: str) -> Path:
        """Return the hub cache's folder of one repository, with blobs/, refs/ and snapshots/."""
        return self.cache_dir / f"models--{_folder_name(model)}"

    def snapshot_folder(self, model: str, revision: str) -> Path:
        """Return the hub cache's folder with the files of one revision."""
        return self.repository_folder(model) / "snapshots" / revision

    def model_path(self, repository: RepositoryPart) -> Path:
        """Return the folder for an engine: the snapshot, or the merged folder if it borrows."""
        if not repository.borrow:
            return self.snapshot_folder(repository.model, repository.revision)
        target_path = self.cache_dir.parent / "lockstep-merged"
        return target_path / _folder_name(repository.model) / repository.revision


def _folder_name(model: str) -> str:
    return model.replace("/", "--")


def _is_small(file: File) -> bool:
    return (file.size or 0) <= SMALL


def parse_spec(text: str) -> Spec:
    """Parse a specification; raise WeightsSpecError with the fault and its place."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise WeightsSpecError(f"not JSON: {error}") from error
    return schema.build(Spec, data, where="the specification", error=_spec_error)


def _spec_error(
    description: str, *, where: str, found: str = "", allowed: str = "", remedy: str = ""
) -> WeightsSpecError:
    return WeightsSpecError(schema.fault_sentence(description, found, allowed))
