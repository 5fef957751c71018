"""The kinds of input that move: a range, a branch, a tag, a revision, each as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PythonWanted:
    """Requirements that are resolved in one step, because their versions belong together.

    Attributes:
        asked: Requirements, normalised, in the order of installation.
        architecture: As `uname -m` says it.
        python: Version of the interpreter ("3.12").
        with_dependencies: Whether the requirements of these packages must fit each other, so that
            torchvision is the one for this torch; False looks at each name alone.
        agree: Names among them that must all have the same version.
    """

    asked: tuple[str, ...]
    architecture: str
    python: str
    with_dependencies: bool = False
    agree: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of this set in the record."""
        return " ".join(self.asked)


@dataclass(frozen=True)
class GitWanted:
    """A branch of a repository, or one commit of it (40 hexadecimal digits)."""

    url: str
    branch: str
    commit: str | None = None

    @property
    def key(self) -> str:
        """Name in the record."""
        return self.url


@dataclass(frozen=True)
class ImageWanted:
    """A container image by tag or digest, for one architecture (as `uname -m` says it)."""

    reference: str
    architecture: str

    @property
    def key(self) -> str:
        """Name in the record."""
        return self.reference


@dataclass(frozen=True)
class ModelWanted:
    """A hub repository at a branch, tag or commit; `files` names the only ones needed, () all."""

    id: str
    revision: str
    files: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name in the record."""
        return self.id


@dataclass(frozen=True)
class Wanted:
    """Every moving input, each once, in a stable order."""

    python: tuple[PythonWanted, ...] = ()
    git: tuple[GitWanted, ...] = ()
    images: tuple[ImageWanted, ...] = ()
    models: tuple[ModelWanted, ...] = ()

    def __len__(self) -> int:
        """How many things there are to resolve; an empty one is false."""
        return len(self.python) + len(self.git) + len(self.images) + len(self.models)


def is_commit(text: str) -> bool:
    """Whether this is a whole git commit id: 40 lower-case hexadecimal digits."""
    return len(text) == 40 and set(text) <= set("0123456789abcdef")
