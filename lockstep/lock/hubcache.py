"""What a hub cache lacks of a repository, from the names of the blobs that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lockstep.lock.pins import FilePin


def absent(files: Sequence[FilePin], blobs: Mapping[str, int]) -> Iterator[str]:
    """Hashes of the files that are not there whole.

    Args:
        files: What the repository is to have.
        blobs: Name of each blob in the cache → bytes; an unfinished one ends with ".incomplete".
    """
    for file in files:
        name = file.sha256 or file.blob
        if name and blobs.get(name) != file.size:
            yield name


def missing_bytes(files: Sequence[FilePin], blobs: Mapping[str, int]) -> int:
    """Bytes still to come, less what is there of unfinished files; arguments as above."""
    total = 0
    for file in files:
        name = file.sha256 or file.blob or ""
        here = blobs.get(name, blobs.get(f"{name}.incomplete", 0))
        total += max(0, file.size - here)
    return total
