"""The kinds of input that move: a range, a branch, a tag, a revision, each as it was asked for.

`section` is the part of the lock that holds the input, `key` its name there. `architecture` is as
`uname -m` says it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class GitItem:
    """A branch of a repository, or one commit of it (40 hexadecimal digits)."""

    section: ClassVar = "git"
    url: str
    branch: str
    commit: str | None = None

    @property
    def key(self) -> str:
        """Name in the lock."""
        return self.url

    @property
    def repository(self) -> str:
        """Name of the repository, without its owner."""
        return self.url.rstrip("/").rpartition("/")[2].removesuffix(".git")


@dataclass(frozen=True)
class PythonItem:
    """An environment's packages, resolved in one step because their versions belong together.

    Attributes:
        name: Name of the environment: "engine", "engine-build", "tools" or "uv".
        asked: Requirements, normalised, in the order of installation.
        python: Version of the interpreter ("3.12").
        agree: Names among them that must all have the same version.
        trees: Source trees that are installed here besides; their requirements are resolved with
            ``asked``, and ``asked`` wins where both name a package.
        build: Whether the environment is the one that ``trees`` are built in.
        exclude_newer: Last day (ISO date) whose uploads to the package index count, `FORK_S_DAY` of
            the settings, or None for no limit.
    """

    section: ClassVar = "python"
    name: str
    requirements: tuple[str, ...]
    architecture: str
    python: str
    agree: tuple[str, ...] = ()
    trees: tuple[GitItem, ...] = ()
    build: bool = False
    exclude_newer: str | None = None

    @property
    def key(self) -> str:
        """Name in the lock."""
        return self.name


@dataclass(frozen=True)
class PrecompiledItem:
    """The wheel of vLLM's from which a fork's build takes its compiled parts.

    Attributes:
        tree: The fork.
        upstream: Repository that the fork left.
        variant: Build of the wheel ("cu130"), "" for the usual one.
        commit: Commit of the wheel; None takes the one at which the fork left upstream.
    """

    section: ClassVar = "precompiled"
    tree: GitItem
    upstream: str
    architecture: str
    variant: str
    commit: str | None = None

    @property
    def key(self) -> str:
        """Name in the lock."""
        return self.tree.url


@dataclass(frozen=True)
class ImageItem:
    """A container image by tag or digest, for one architecture."""

    section: ClassVar = "images"
    reference: str
    architecture: str

    @property
    def key(self) -> str:
        """Name in the lock."""
        return self.reference


@dataclass(frozen=True)
class CheckpointItem:
    """A hub repository at a branch, tag or commit.

    Attributes:
        id: Name of the repository.
        revision: Branch, tag or commit.
        files: Files that are needed, as `gguf.chosen` takes them.
        formats: Formats in which engines look for its weights, as `weight_files.needed_files` takes
            them; with none here and no `files`, the whole repository is needed.
        experts: Whether its configuration must say if it is a mixture of experts, because the
            recipe does not.
    """

    section: ClassVar = "checkpoints"
    id: str
    revision: str
    files: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    experts: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """Name in the lock."""
        return self.id


Item: TypeAlias = PythonItem | GitItem | PrecompiledItem | ImageItem | CheckpointItem
