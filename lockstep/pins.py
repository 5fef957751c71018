"""What every moving name stood for when a deploy first met it: the record in `pins/*.yaml`.

Group data may name a branch, a tag, a range; the first deploy resolves each once, uses the result
on every host, and writes it here. A later deploy resolves only what the record does not hold.
To move something forward, delete its entry and deploy again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockstep import schema
from lockstep.errors import InventoryError, ResolveError
from lockstep.moving import GitWanted, ImageWanted, ModelWanted, PythonWanted, Wanted
from lockstep.pincheck import faults
from lockstep.yamlfile import place, read_mapping
from lockstep.yamlwrite import dump, replace_file

HEADER = """\
# What every branch, tag, range and revision stood for when a deploy first met it.
# Written by the deploy; every host gets exactly this. Keep it under version control.
# To move one thing forward, delete its entry and deploy again. To move all, delete the file.
"""


@dataclass(frozen=True)
class PythonPin:
    """A set of requirements at exact versions.

    Attributes:
        exact: "name==version" for each requirement asked for, in the same order.
        architecture: What it was resolved for, as `uname -m` says it.
        python: Version of the interpreter it was resolved for.
        resolved: ISO date, "" where unknown.
    """

    exact: tuple[str, ...]
    architecture: str
    python: str
    resolved: str = ""


@dataclass(frozen=True)
class GitPin:
    """A branch of a repository at one commit (40 hexadecimal digits)."""

    branch: str
    commit: str
    resolved: str = ""


@dataclass(frozen=True)
class ImagePin:
    """An image reference at one manifest, for one architecture.

    Attributes:
        digest: "sha256:…" of the manifest for `architecture`.
        architecture: As `uname -m` says it ("aarch64").
        size: Compressed bytes of its layers, what a pull fetches at most.
        resolved: ISO date, "" where unknown.
    """

    digest: str
    architecture: str
    size: int
    resolved: str = ""


@dataclass(frozen=True)
class FilePin:
    """One file of a hub repository.

    Attributes:
        path: Inside the repository.
        size: Bytes.
        sha256: Of the content, for LFS files (the weights).
        blob: git's own id (SHA-1) of the content, for all others.
    """

    path: str
    size: int
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True)
class ModelPin:
    """A hub repository at one commit, with its files.

    Attributes:
        asked: The revision that was asked for ("main").
        commit: The commit it stood for.
        files: What a complete snapshot holds.
        partial: Whether only the files were asked for that somebody borrows.
        resolved: ISO date, "" where unknown.
    """

    asked: str
    commit: str
    files: tuple[FilePin, ...]
    partial: bool = False
    resolved: str = ""

    @property
    def size(self) -> int:
        """Bytes of a complete snapshot."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Pins:
    """Everything resolved.

    Attributes:
        python: Requirements as asked for, joined by blanks → exact versions. Read it with
            `lockstep.packages.engine_requirements` and `tool_requirements`.
        git: Repository URL → commit.
        images: Image reference as asked for → digest.
        models: Hub id → commit and files.
    """

    python: Mapping[str, PythonPin] = field(default_factory=dict)
    git: Mapping[str, GitPin] = field(default_factory=dict)
    images: Mapping[str, ImagePin] = field(default_factory=dict)
    models: Mapping[str, ModelPin] = field(default_factory=dict)

    def __or__(self, later: Pins) -> Pins:
        """Both; what `later` holds wins."""
        return Pins(
            python={**self.python, **later.python},
            git={**self.git, **later.git},
            images={**self.images, **later.images},
            models={**self.models, **later.models},
        )


def load(path: Path) -> Pins:
    """The record at ``path``; an absent file is an empty record.

    Raises:
        InventoryError: the file is not such a record, with file, line, key and what is allowed.
    """
    if not path.exists():
        return Pins()
    document = read_mapping(path, InventoryError)
    filled = {section: {} if value is None else value for section, value in document.items()}
    pins = schema.build(Pins, filled, where=str(path))
    for fault in faults(pins):
        raise InventoryError(
            f"{fault.section}: {fault.key}: {fault.what}",
            where=place(str(path), document[fault.section], fault.key),
            found=repr(fault.found)[:70],
            allowed=fault.allowed,
            remedy="Restore the entry, or delete it to resolve it again.",
        )
    return pins


def save(path: Path, pins: Pins) -> None:
    """Write the record whole, or leave what is there.

    Raises:
        ResolveError: the file cannot be written.
    """
    try:
        replace_file(path, HEADER + dump(pins))
    except OSError as fault:
        raise ResolveError(
            "the record of pins cannot be written",
            where=str(path),
            found=fault.strerror or str(fault),
            remedy="Make the folder writable and deploy again; no host was changed.",
        ) from fault


def missing(wanted: Wanted, pins: Pins) -> Wanted:
    """What of `wanted` the record lacks, or holds for another branch, revision or architecture."""
    return Wanted(
        python=tuple(item for item in wanted.python if not has_python(pins, item)),
        git=tuple(item for item in wanted.git if not _has_git(pins, item)),
        images=tuple(item for item in wanted.images if not _has_image(pins, item)),
        models=tuple(item for item in wanted.models if not _has_model(pins, item)),
    )


def has_python(pins: Pins, item: PythonWanted) -> bool:
    """Whether the record holds these requirements for this architecture and interpreter."""
    pin = pins.python.get(item.key)
    return pin is not None and (pin.architecture, pin.python) == (item.architecture, item.python)


def _has_git(pins: Pins, item: GitWanted) -> bool:
    pin = pins.git.get(item.url)
    if pin is None or pin.branch != item.branch:
        return False
    return item.commit in (None, pin.commit)


def _has_image(pins: Pins, item: ImageWanted) -> bool:
    pin = pins.images.get(item.reference)
    return pin is not None and pin.architecture == item.architecture


def _has_model(pins: Pins, item: ModelWanted) -> bool:
    pin = pins.models.get(item.id)
    if pin is None or pin.asked != item.revision:
        return False
    if not pin.partial:
        return True
    return bool(item.files) and set(item.files) <= {file.path for file in pin.files}
