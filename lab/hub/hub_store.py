"""Model repositories on disk: files by content, revisions as lists of them.

``<root>/<owner>/<name>/repository.json`` holds the branches, whether the repository is gated,
and for each revision its date, title and files; ``blobs/`` holds each file once, named by its
entity tag. Both are replaced, never rewritten, so that a folder may be linked, not copied.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lab.core.errors import LabError

#: Endings of the names of LFS files, which have a sha256 as identity, as on the real hub.
LARGE_SUFFIXES = (".safetensors", ".gguf", "tekken.json", "tokenizer.json")


@dataclass(frozen=True)
class StoredFile:
    """One file of a revision: its size in bytes and the git or LFS identity of its content."""

    size: int
    oid: str
    sha256: str | None

    @property
    def etag(self) -> str:
        """The sha256 of an LFS file, the git blob id (sha1) of any other."""
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Revision:
    """One commit of a repository."""

    title: str
    date: str
    files: Mapping[str, StoredFile]


@dataclass(frozen=True)
class Repository:
    """Branches by name, and revisions by their 40-digit commit, oldest first."""

    branches: Mapping[str, str]
    revisions: Mapping[str, Revision]
    licence: str | None = None
    is_gated: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    def resolve(self, name: str) -> str | None:
        """The commit that a branch, tag, commit or beginning of a commit stands for."""
        commit = self.branches.get(name) or self.tags.get(name)
        if commit or len(name) < 7:
            return commit
        return next(
            (revision_id for revision_id in self.revisions if revision_id.startswith(name)), None
        )


def load(root: Path, name: str) -> Repository | None:
    """Read the repository ``owner/name``, or ``None`` if the store has none of that name."""
    path = root / name / "repository.json"
    if name.count("/") != 1 or ".." in name or not path.is_file():
        return None
    data = json.loads(path.read_text())
    revisions = {
        commit: Revision(
            entry["title"],
            entry["date"],
            {path: StoredFile(**file) for path, file in entry["files"].items()},
        )
        for commit, entry in data.pop("revisions").items()
    }
    try:
        return Repository(revisions=revisions, **data)
    except TypeError as error:
        raise LabError(
            f"{path} is of an earlier version: lockstep lab down --delete, and up again"
        ) from error


def save(root: Path, name: str, repository: Repository) -> None:
    """Write the repository's description, replacing the old one at once."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    target_path = folder / "repository.json.unfinished"
    target_path.write_text(json.dumps(asdict(repository), indent=1))
    target_path.rename(folder / "repository.json")


def blob_path(root: Path, name: str, file: StoredFile) -> Path:
    """The path of a file's content."""
    return root / name / "blobs" / file.etag


def commit(
    root: Path,
    name: str,
    files: Mapping[str, bytes],
    title: str,
    date: str,
    *,
    sha: str | None = None,
    licence: str | None = None,
) -> str:
    """Add a revision with exactly these files to branch ``main``, and return its commit.

    The commit is derived from the content, unless ``sha`` names that of the real repository.
    """
    earlier_repository = load(root, name) or Repository({}, {}, licence)
    stored_files = {
        path: _store(root, name, path, content) for path, content in sorted(files.items())
    }
    content = json.dumps([name, title, date, {k: v.etag for k, v in stored_files.items()}])
    commit_id = sha or hashlib.sha1(content.encode()).hexdigest()
    later_repository = Repository(
        branches={**earlier_repository.branches, "main": commit_id},
        revisions={**earlier_repository.revisions, commit_id: Revision(title, date, stored_files)},
        licence=licence or earlier_repository.licence,
        is_gated=earlier_repository.is_gated,
        tags=earlier_repository.tags,
    )
    save(root, name, later_repository)
    return commit_id


def merge(source: Path, target: Path) -> None:
    """Bring the repositories of one store into another, whose older revisions stay.

    Files are linked, not copied; both must be on one file system.
    """
    for path in sorted(source.glob("*/*/repository.json")):
        name = str(path.parent.relative_to(source))
        blobs = target / name / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        for blob in (source / name / "blobs").iterdir():
            if not (blobs / blob.name).exists():
                os.link(blob, blobs / blob.name)
        newer, older = load(source, name), load(target, name)
        if newer and older:
            newer = replace(
                newer,
                revisions={**older.revisions, **newer.revisions},
                tags={**older.tags, **newer.tags},
            )
        if newer:
            save(target, name, newer)


def _store(root: Path, name: str, path: str, content: bytes) -> StoredFile:
    large = path.endswith(LARGE_SUFFIXES)
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    sha256 = hashlib.sha256(content).hexdigest() if large else None
    file = StoredFile(len(content), oid, sha256)
    target = blob_path(root, name, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target_path = target.with_name(target.name + f".{os.getpid()}")
        target_path.write_bytes(content)
        target_path.rename(target)
    return file
