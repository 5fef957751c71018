"""Content known by its hash: a SHA-256 (64 hex digits), or git's id of a file (40)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

NAME = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
PARTIAL = ".incomplete"
_CHUNK = 4 * 1024 * 1024


class Hasher(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """The hash of everything taken in."""


def hasher(name: str, size: int) -> Hasher:
    """The hash whose digest must be `name` after `size` bytes."""
    if len(name) == 64:
        return hashlib.sha256()
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return digest


def chunks(path: Path, digest: Hasher) -> Iterator[int]:
    """Take a whole file into `digest`, piece by piece; the size of each in bytes."""
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield len(chunk)
        forget(file.fileno())


def read(path: Path, digest: Hasher) -> int:
    """Take a whole file into `digest`; how many bytes it has."""
    return sum(chunks(path, digest))


def size(path: Path) -> int:
    """Bytes of a file, 0 where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def partial(path: Path) -> Path:
    """Where what has come of a file is, until all of it has."""
    return path.with_name(path.name + PARTIAL)


def begun(path: Path) -> int:
    """Bytes of a file, or of what has come of it."""
    return size(path) or size(partial(path))


def matches(path: Path, name: str) -> bool:
    """Whether the file's content is what `name` says."""
    digest = hasher(name, path.stat().st_size)
    read(path, digest)
    return digest.hexdigest() == name


def forget(fileno: int) -> None:
    """Leave no page cache behind: an engine needs the memory, and copies are read once."""
    os.posix_fadvise(fileno, 0, 0, os.POSIX_FADV_DONTNEED)
