"""What no type can say about a record of pins: that a commit is a commit, a digest a digest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from lockstep.moving import is_commit

if TYPE_CHECKING:
    from lockstep.pins import FilePin, Pins

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
    """Every wrong value of a record, in its own order."""
    for key, python in pins.python.items():
        if not python.exact:
            yield Fault("python", key, "exact is empty", [], "one NAME==VERSION per requirement")
        for item in python.exact:
            if not is_exact(item):
                yield Fault("python", key, "exact is not exact", item, "NAME==VERSION")
    for url, git in pins.git.items():
        if not is_commit(git.commit):
            yield Fault("git", url, "commit is not a commit", git.commit, _COMMIT)
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


def is_exact(text: str) -> bool:
    """Whether this is one package at one version: "name==1.2"."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return False
    specifiers = list(requirement.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "=="
    return exact and not specifiers[0].version.endswith(".*")


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
