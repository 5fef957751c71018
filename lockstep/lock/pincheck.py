"""What no type can say about a lock: that a commit is a commit, a digest a digest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import (
    InvalidWheelFilename,
    canonicalize_name,
    canonicalize_version,
    parse_wheel_filename,
)

from lockstep.core.digest import is_commit

if TYPE_CHECKING:
    from lockstep.lock.pins import FilePin, Pins, PrecompiledPin, WheelPin

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{40}")
_COMMIT = "40 lower-case hexadecimal digits"


@dataclass(frozen=True)
class Fault:
    """One wrong value: section and key of its entry, what is wrong, found and allowed."""

    section: str
    key: str
    what: str
    found: object
    allowed: str


def faults(pins: Pins) -> Iterator[Fault]:
    """Every wrong value of a lock, in its own order."""
    for key, python in pins.python.items():
        for wheel in python.packages:
            yield from _wheel_faults(key, wheel)
        for url, commit in python.trees.items():
            if not is_commit(commit):
                yield Fault("python", key, f"{url}: commit is not a commit", commit, _COMMIT)
    for url, git in pins.git.items():
        if not is_commit(git.commit):
            yield Fault("git", url, "commit is not a commit", git.commit, _COMMIT)
    for url, compiled in pins.precompiled.items():
        yield from _precompiled_faults(url, compiled)
    for reference, image in pins.images.items():
        if not _DIGEST.fullmatch(image.digest):
            allowed = "sha256: and 64 hexadecimal digits"
            yield Fault("images", reference, "digest is not a digest", image.digest, allowed)
        if image.size < 0:
            yield Fault("images", reference, "size is not a size", image.size, "bytes")
    for name, model in pins.models.items():
        if not is_commit(model.commit):
            yield Fault("models", name, "commit is not a commit", model.commit, _COMMIT)
        for file in model.files:
            yield from _file_faults(name, file)


def is_inside(path: str) -> bool:
    """Whether this names a file inside a repository: relative, and nothing climbs out."""
    parts = path.split("/")
    return not path.startswith("-") and not {"", ".", ".."} & set(parts)


def _file_faults(name: str, file: FilePin) -> Iterator[Fault]:
    if not is_inside(file.path):
        yield Fault("models", name, "a path leaves the repository", file.path, "FOLDER/FILE")
    if file.size < 0:
        yield Fault("models", name, f"{file.path}: size is not a size", file.size, "bytes")
    if file.sha256 is not None and not _DIGEST.fullmatch(f"sha256:{file.sha256}"):
        what = f"{file.path}: sha256 is not a hash"
        yield Fault("models", name, what, file.sha256, "64 hexadecimal digits")
    if file.blob is not None and not _BLOB.fullmatch(file.blob):
        what = f"{file.path}: blob is not a git id"
        yield Fault("models", name, what, file.blob, "40 hexadecimal digits")


def _precompiled_faults(url: str, wheel: PrecompiledPin) -> Iterator[Fault]:
    for what, commit in (("tree", wheel.tree), ("commit", wheel.commit)):
        if not is_commit(commit):
            yield Fault("precompiled", url, f"{what} is not a commit", commit, _COMMIT)
    try:
        parse_wheel_filename(wheel.file)
    except InvalidWheelFilename:
        yield Fault("precompiled", url, "path is not that of a wheel", wheel.path, "…/NAME-….whl")
    if not is_inside(wheel.path):
        yield Fault("precompiled", url, "path leaves the server", wheel.path, "FOLDER/FILE")
    if not _DIGEST.fullmatch(f"sha256:{wheel.sha256}"):
        allowed = "64 hexadecimal digits"
        yield Fault("precompiled", url, "sha256 is not a hash", wheel.sha256, allowed)
    if wheel.size < 0:
        yield Fault("precompiled", url, "size is not a size", wheel.size, "bytes")


def _wheel_faults(key: str, wheel: WheelPin) -> Iterator[Fault]:
    try:
        name, version, *_ = parse_wheel_filename(wheel.file)
    except InvalidWheelFilename:
        yield Fault("python", key, f"{wheel.name}: file is not a wheel", wheel.file, "NAME-….whl")
        return
    said = (canonicalize_name(wheel.name), canonicalize_version(wheel.version))
    if (name, canonicalize_version(version)) != said:
        what = f"{wheel.name}: file is another package or version"
        yield Fault("python", key, what, wheel.file, f"{wheel.name} {wheel.version}")
    if not _DIGEST.fullmatch(f"sha256:{wheel.sha256}"):
        what = f"{wheel.name}: sha256 is not a hash"
        yield Fault("python", key, what, wheel.sha256, "64 hexadecimal digits")
    if wheel.size is not None and wheel.size < 0:
        yield Fault("python", key, f"{wheel.name}: size is not a size", wheel.size, "bytes")
