"""Files named by the hash of their content: a SHA-256 (64 hex digits), or git's id (40)."""

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
    """The part of a hash object of hashlib that is used here."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add more bytes."""

    def hexdigest(self) -> str:
        """Return the hash of all added bytes."""


def hasher(name: str, size: int) -> Hasher:
    """Return the hash object whose digest must be `name` after `size` bytes."""
    if len(name) == 64:
        return hashlib.sha256()
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return digest


def feed_hash_in_pieces(path: Path, digest: Hasher) -> Iterator[int]:
    """Add a whole file to `digest`, piece by piece; yield the size of each piece in bytes."""
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield len(chunk)
        drop_page_cache(file.fileno())


def add_file_to_hash(path: Path, digest: Hasher) -> int:
    """Add a whole file to `digest`; return its size in bytes."""
    return sum(feed_hash_in_pieces(path, digest))


def size(path: Path) -> int:
    """Return the bytes of a file, 0 if it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def partial_path(path: Path) -> Path:
    """Return the path of an unfinished file."""
    return path.with_name(path.name + PARTIAL)


def bytes_begun(path: Path) -> int:
    """Return the bytes of a file, or of its unfinished part."""
    return size(path) or size(partial_path(path))


def matches(path: Path, name: str) -> bool:
    """Tell whether the file's content has the hash `name`."""
    digest = hasher(name, path.stat().st_size)
    add_file_to_hash(path, digest)
    return digest.hexdigest() == name


def drop_page_cache(fileno: int) -> None:
    """Drop the file's page cache: an engine needs the memory, and copies are read once."""
    os.posix_fadvise(fileno, 0, 0, os.POSIX_FADV_DONTNEED)
