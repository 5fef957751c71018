"""What every moving name stood for when a deploy first met it: the record in `pins/*.yaml`.

Group data may name a branch, a tag, a range; the first deploy resolves each once, uses the result
on every host, and writes it here. A later deploy resolves only what the record does not hold.
To move something forward, delete its entry and deploy again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GitPin:
    """A branch of a repository at one commit (40 hexadecimal digits)."""

    branch: str
    commit: str


@dataclass(frozen=True)
class ImagePin:
    """An image reference at one manifest, for one architecture.

    Attributes:
        digest: "sha256:…" of the manifest for `architecture`.
        architecture: As `uname -m` says it ("aarch64").
        size: Compressed bytes of its layers, what a pull fetches at most.
    """

    digest: str
    architecture: str
    size: int


@dataclass(frozen=True)
class FilePin:
    """One file of a hub repository: size in bytes, and sha256 where the hub states it."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class ModelPin:
    """A hub repository at one commit, with its files.

    Attributes:
        asked: The revision that was asked for ("main").
        commit: The commit it stood for.
        files: What a complete snapshot holds.
    """

    asked: str
    commit: str
    files: tuple[FilePin, ...]

    @property
    def size(self) -> int:
        """Bytes of a complete snapshot."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Pins:
    """Everything resolved.

    Attributes:
        python: Requirement as asked for → exact requirement ("mistral_common" →
            "mistral-common==1.8.5"). The key of the FlashInfer triple holds its three versions.
        git: Repository URL → commit.
        images: Image reference as asked for → digest.
        models: Hub id → commit and files.
    """

    python: Mapping[str, str] = field(default_factory=dict)
    git: Mapping[str, GitPin] = field(default_factory=dict)
    images: Mapping[str, ImagePin] = field(default_factory=dict)
    models: Mapping[str, ModelPin] = field(default_factory=dict)
