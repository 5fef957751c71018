"""Which files of which repositories a host must have, and where they are in the hub's cache.

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
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: Bytes. A configuration has a few thousand, one that names its layers some hundred thousand, a
#: tokenizer several million.
SMALL = 2 * 2**20
DEFAULT_ENDPOINT = "https://huggingface.co"
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{40}")


class BadSpec(ValueError):
    """The specification is unusable; `str()` names the key, what was found and what is allowed."""


@dataclass(frozen=True)
class File:
    """One file: path inside the repository, size in bytes (None: unknown), and its hash.

    `sha256` is there for LFS files (the weights), `blob`, git's own id, for all others.
    """

    path: str
    size: int | None = None
    sha256: str | None = None
    blob: str | None = None

    @property
    def name(self) -> str | None:
        """The hash by which the hub's cache and every peer know the content; None: unknown."""
        return self.sha256 or self.blob


@dataclass(frozen=True)
class Borrow:
    """Files taken from another repository."""

    model: str
    revision: str
    files: tuple[File, ...]


@dataclass(frozen=True)
class Repository:
    """One model at a pinned revision, with all files that the host must have.

    `refs` are names (`main`) that an engine without `--revision` resolves offline.
    """

    model: str
    revision: str
    files: tuple[File, ...]
    borrow: tuple[Borrow, ...] = ()
    refs: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def parts(self) -> tuple[Repository, ...]:
        """Its own files, then those of each repository that it borrows from; none borrows."""
        borrowed = [Repository(each.model, each.revision, each.files) for each in self.borrow]
        return (replace(self, borrow=(), refs=()), *borrowed)


@dataclass(frozen=True)
class Spec:
    """What one host needs."""

    cache_dir: Path
    endpoint: str
    repositories: tuple[Repository, ...]

    def small(self) -> Spec:
        """Its small files alone: what an engine's code reads of a checkpoint before its weights.

        Without merged folders and names, which promise a checkpoint that is whole.
        """
        parts = [part for repository in self.repositories for part in repository.parts]
        few = tuple(
            replace(part, files=tuple(file for file in part.files if (file.size or 0) <= SMALL))
            for part in parts
        )
        return replace(self, repositories=few)

    @property
    def stamps(self) -> Path:
        """Folder of the stamps that say which files were read and found right."""
        return self.cache_dir.parent / "lockstep-verified"

    def stamp(self, repository: Repository) -> Path:
        """Stamp file of one repository: {path: {size, mtime_ns, and sha256 or blob}}."""
        return self.stamps / f"{_folder(repository.model)}@{repository.revision}.json"

    def repository_folder(self, model: str) -> Path:
        """The hub cache's folder of one repository, with blobs/, refs/ and snapshots/."""
        return self.cache_dir / f"models--{_folder(model)}"

    def snapshot(self, model: str, revision: str) -> Path:
        """The hub cache's folder with the files of one revision."""
        return self.repository_folder(model) / "snapshots" / revision

    def model_path(self, repository: Repository) -> Path:
        """The folder to give to an engine: the snapshot, or the merged folder if it borrows."""
        if not repository.borrow:
            return self.snapshot(repository.model, repository.revision)
        merged = self.cache_dir.parent / "lockstep-merged"
        return merged / _folder(repository.model) / repository.revision


def _folder(model: str) -> str:
    return model.replace("/", "--")


def parse(text: str) -> Spec:
    """Read a specification. BadSpec says what is wrong, with its place."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise BadSpec(f"not JSON: {error}") from error
    top = _object(data, "specification", {"cache_dir", "endpoint", "repositories"})
    cache_dir = Path(_text(top, "cache_dir", "specification"))
    if not cache_dir.is_absolute():
        raise BadSpec(f"cache_dir: expected an absolute path, found {str(cache_dir)!r}")
    repositories = tuple(
        _repository(entry, f"repositories[{index}]")
        for index, entry in enumerate(_list(top, "repositories", "specification"))
    )
    endpoint = str(top.get("endpoint") or DEFAULT_ENDPOINT).rstrip("/")
    return Spec(cache_dir, endpoint, repositories)


def _repository(entry: Any, where: str) -> Repository:
    data = _object(entry, where, {"model", "revision", "files", "borrow", "refs"})
    return Repository(
        model=_matching(data, "model", where, _MODEL, "ORG/NAME"),
        revision=_matching(data, "revision", where, _COMMIT, "a commit of 40 hex digits"),
        files=_files(data, where),
        borrow=tuple(
            _borrow(item, f"{where}.borrow[{index}]")
            for index, item in enumerate(data.get("borrow") or [])
        ),
        refs=tuple(str(ref) for ref in data.get("refs") or []),
    )


def _borrow(entry: Any, where: str) -> Borrow:
    data = _object(entry, where, {"model", "revision", "files"})
    return Borrow(
        model=_matching(data, "model", where, _MODEL, "ORG/NAME"),
        revision=_matching(data, "revision", where, _COMMIT, "a commit of 40 hex digits"),
        files=_files(data, where),
    )


def _files(data: dict[str, Any], where: str) -> tuple[File, ...]:
    return tuple(
        _file(item, f"{where}.files[{index}]")
        for index, item in enumerate(_list(data, "files", where))
    )


def _file(entry: Any, where: str) -> File:
    if isinstance(entry, str):
        entry = {"path": entry}
    data = _object(entry, where, None)
    path, size, sha256 = _text(data, "path", where), data.get("size"), data.get("sha256")
    if path.startswith("/") or ".." in path.split("/"):
        raise BadSpec(f"{where}.path: expected a path inside the repository, found {path!r}")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise BadSpec(f"{where}.size: expected bytes, found {size!r}")
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise BadSpec(f"{where}.sha256: expected 64 hex digits or null, found {sha256!r}")
    blob = data.get("blob")
    if blob is not None and not (isinstance(blob, str) and _BLOB.fullmatch(blob)):
        raise BadSpec(f"{where}.blob: expected 40 hex digits or null, found {blob!r}")
    return File(path, size, sha256, blob)


def _object(entry: Any, where: str, allowed: set[str] | None) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise BadSpec(f"{where}: expected an object, found {type(entry).__name__}")
    if allowed is not None and (unknown := sorted(set(entry) - allowed)):
        raise BadSpec(f"{where}: unknown key {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}")
    return entry


def _list(data: dict[str, Any], key: str, where: str) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        raise BadSpec(f"{where}.{key}: expected a list, found {value!r}")
    return value


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise BadSpec(f"{where}.{key}: expected text, found {value!r}")
    return value


def _matching(
    data: dict[str, Any], key: str, where: str, pattern: re.Pattern[str], expected: str
) -> str:
    value = _text(data, key, where)
    if not pattern.fullmatch(value):
        raise BadSpec(f"{where}.{key}: expected {expected}, found {value!r}")
    return value
