"""Revisions in the hub's cache that a deploy downloaded, and their removal.

A note, an empty file `lockstep-fetched/ORG--NAME@COMMIT` beside the cache, says that we made that
snapshot. A blob is removed with the last snapshot that links to it. Snapshots that an operator's
own tools put into the same cache are others, and have no note.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NOTE = re.compile(r"([A-Za-z0-9][\w.-]*--[A-Za-z0-9][\w.-]*)@([0-9a-f]{40})")


class Revision(NamedTuple):
    """One snapshot of ours: `name` is ORG/NAME@COMMIT, `bytes` are freed with it."""

    note: Path
    name: str
    bytes: int


def notes_folder(cache_dir: Path) -> Path:
    """Return the folder of the notes."""
    return cache_dir.parent / "lockstep-fetched"


def note_own_snapshot(cache_dir: Path, repository: str, commit: str) -> None:
    """Note that a snapshot is ours, before its first byte comes, unless it is there already."""
    if (cache_dir / f"models--{repository}/snapshots/{commit}").exists():
        return
    notes_folder(cache_dir).mkdir(parents=True, exist_ok=True)
    (notes_folder(cache_dir) / f"{repository}@{commit}").touch()


def unneeded_revisions(cache_dir: Path, text: str) -> Iterator[Revision]:
    """Yield snapshots of ours whose commit is not in `text`."""
    revisions = [
        (note, match[1], match[2])
        for note in sorted(notes_folder(cache_dir).glob("*"))
        if (match := _NOTE.fullmatch(note.name)) and match[2] not in text
    ]
    counted_blobs: set[Path] = set()
    for note, name, commit in revisions:
        going = {other_commit for _, its_name, other_commit in revisions if its_name == name}
        repository = cache_dir / f"models--{name}"
        blobs = _blobs_of_snapshot(repository, commit) - counted_blobs
        for snapshot in repository.glob("snapshots/*"):
            if snapshot.name not in going:
                blobs -= _blobs_of_snapshot(repository, snapshot.name)
        counted_blobs |= blobs
        size = sum(blob.stat().st_blocks * 512 for blob in blobs)
        yield Revision(note, f"{name.replace('--', '/', 1)}@{commit}", size)


def remove_snapshot(note: Path, cache_dir: Path) -> None:
    """Remove the snapshot of one note, with the blobs that only it needed, and the note last."""
    match = _NOTE.fullmatch(note.name)
    assert match, note
    name, commit = match[1], match[2]
    repository = cache_dir / f"models--{name}"
    blobs = _blobs_of_snapshot(repository, commit)
    _rmtree(repository / "snapshots" / commit)
    for snapshot in repository.glob("snapshots/*"):
        blobs -= _blobs_of_snapshot(repository, snapshot.name)
    for blob in blobs:
        blob.unlink(missing_ok=True)
    for ref in (path for path in repository.glob("refs/**/*") if path.is_file()):
        if ref.read_text(encoding="ascii", errors="replace").strip() == commit:
            ref.unlink()
    for folder in ("snapshots", "blobs", "refs", "."):
        # Only empty folders are removed.
        with contextlib.suppress(OSError):
            (repository / folder).rmdir()
    _rmtree(cache_dir.parent / "lockstep-merged" / name / commit)
    (cache_dir.parent / "lockstep-verified" / f"{name}@{commit}.json").unlink(missing_ok=True)
    note.unlink()


def _rmtree(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _blobs_of_snapshot(repository: Path, commit: str) -> set[Path]:
    """Return the blobs that a snapshot links to."""
    blobs = repository / "blobs"
    links = (repository / "snapshots" / commit).glob("**/*")
    targets = {link.resolve() for link in links if link.is_symlink()}
    return {path for path in targets if path.parent == blobs.resolve() and path.is_file()}
