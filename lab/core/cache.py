"""Built things, named by what they are built from, so that a half-built one is never used."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

Report = Callable[[str], None]

#: How long a build that is no longer the newest stays for older checkouts.
UNUSED_DAYS = 14


def fingerprint(inputs: Iterable[str | bytes | Path]) -> str:
    """Twelve hexadecimal digits that change when any input changes.

    A ``Path`` stands for the content of that file, or of every file below that directory.
    """
    digest = hashlib.sha256()
    for item in inputs:
        for part in _parts(item):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()[:12]


def _parts(item: str | bytes | Path) -> Iterator[bytes]:
    if isinstance(item, bytes):
        yield item
    elif isinstance(item, str):
        yield item.encode()
    elif item.is_dir():
        for path in sorted(item.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(item)).encode()
                yield path.read_bytes()
    else:
        yield item.read_bytes()


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; a second process waits until the first has finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(folder: Path, build: Callable[[Path], None], report: Report, title: str) -> Path:
    """Return ``folder``, calling ``build`` on a temporary folder first if it does not exist.

    The temporary folder is renamed only when ``build`` returns, and removed when it raises;
    one that an interrupted process left behind is removed by the next build of the same name.
    """
    if folder.exists():
        os.utime(folder)
        return folder
    with exclusive_lock(folder.parent / (folder.name + ".lock")):
        if folder.exists():
            return folder
        report(f"{title}: building")
        target_path = folder.parent / (folder.name + ".unfinished")
        shutil.rmtree(target_path, ignore_errors=True)
        target_path.mkdir(parents=True)
        try:
            build(target_path)
        except BaseException:
            shutil.rmtree(target_path, ignore_errors=True)
            raise
        target_path.rename(folder)
        report(f"{title}: ready, {size(folder) / 1e6:.0f} MB")
    return folder


def prune(cache: Path, prefixes: Iterable[str], keep: Iterable[Path], report: Report) -> None:
    """Remove what no lab has asked for in ``UNUSED_DAYS``: versions that were replaced."""
    kept_folders = set(keep)
    oldest = time.time() - UNUSED_DAYS * 86400
    for prefix in prefixes:
        for folder in cache.glob(f"{prefix}-*"):
            if folder.is_dir() and folder not in kept_folders and folder.stat().st_mtime < oldest:
                report(f"removing {folder.name}, unused for {UNUSED_DAYS} days")
                shutil.rmtree(folder, ignore_errors=True)
                folder.with_name(folder.name + ".lock").unlink(missing_ok=True)


def size(folder: Path) -> int:
    """Bytes of all regular files below ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
