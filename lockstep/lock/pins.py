"""The exact version, commit or digest of every moving name, with its hashes.

`lockstep.lock.lockfile` keeps them in a file, `lockstep.lock.resolve` finds them. Group data may
name a branch, a tag, a range; each is resolved once, and every host gets exactly what stands here.
In all pins `resolved` is an ISO date, "" where unknown, and `architecture` is as `uname -m` says it
("aarch64").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from packaging.utils import canonicalize_name, canonicalize_version, parse_wheel_filename

from lockstep.checkpoints import gguf
from lockstep.core.errors import ResolveError
from lockstep.lock import moving
from lockstep.onhost.core.request_kinds_and_refused_shapes import TemplateShape
from lockstep.onhost.core.schema import Rule, SchemaFault, pattern_rule

#: Files that say what a repository's model is; the first one that exists counts.
CONFIGURATIONS = ("config.json", "params.json")
_REMEDY = "Restore the entry, or delete it to resolve it again."


def _like(pattern: str, fault: str, allowed_text: str) -> Rule:
    return pattern_rule(pattern, fault, allowed_text, remedy=_REMEDY)


_Commit = Annotated[
    str, _like("[0-9a-f]{40}", "is not a commit", "40 lower-case hexadecimal digits")
]
_Sha256 = Annotated[str, _like("[0-9a-f]{64}", "is not a hash", "64 hexadecimal digits")]
_Digest = Annotated[
    str, _like("sha256:[0-9a-f]{64}", "is not a digest", "sha256: and 64 hexadecimal digits")
]
_Blob = Annotated[str, _like("[0-9a-f]{40}", "is not a git id", "40 hexadecimal digits")]
_Bytes = Annotated[int, Rule("is not a size", lambda size: size >= 0, "bytes", _REMEDY)]


_Cuda = Annotated[
    str, _like(r"(?:\d+(?:\.\d+){1,2})?", "is not a release of CUDA", "13.0.3, or nothing")
]


def is_inside(path: str) -> bool:
    """Tell whether a path names a file inside a repository: relative, without climbing out."""
    parts = path.split("/")
    return not path.startswith("-") and not {"", ".", ".."} & set(parts)


_Inside = Annotated[str, Rule("leaves its place", is_inside, "FOLDER/FILE", _REMEDY)]
# InvalidWheelFilename is a ValueError.
_Wheel = Rule(
    "is not the name of a wheel",
    lambda path: parse_wheel_filename(path.rpartition("/")[2]),
    "NAME-….whl",
    _REMEDY,
)


def _of_another_package(wheel: WheelPin) -> SchemaFault | None:
    name, version, *_ = parse_wheel_filename(wheel.file)
    name_and_version = (canonicalize_name(wheel.name), canonicalize_version(wheel.version))
    if (name, canonicalize_version(version)) == name_and_version:
        return None
    allowed_text = f"{wheel.name} {wheel.version}"
    return SchemaFault(
        "has the file of another package or version", wheel.file, allowed_text, _REMEDY
    )


@dataclass(frozen=True)
class WheelPin:
    """One package of an environment, as the one file that a Spark takes.

    Attributes:
        name: Normalised name of the distribution.
        version: Whole version, a local part ("+cu130") included.
        file: Name of the wheel.
        sha256: Hash of the wheel.
        size: Bytes; None where the index does not say.
    """

    name: str
    version: str
    file: Annotated[str, _Wheel]
    sha256: _Sha256
    size: _Bytes | None = None


@dataclass(frozen=True)
class PythonPin:
    """One environment: every package in it, those included that other packages need.

    Attributes:
        asked: The requirements it was resolved for.
        python: Version of the interpreter it was resolved for.
        packages: Every package, sorted by name.
        trees: Repository → commit of the source trees whose needs are among them.
        exclude_newer: Last day whose uploads counted, as it was asked for; None: no limit.
    """

    asked: tuple[str, ...]
    architecture: str
    python: str
    packages: tuple[Annotated[WheelPin, _of_another_package], ...]
    trees: Mapping[str, _Commit] = field(default_factory=dict)
    resolved: str = ""
    exclude_newer: str | None = None

    @cached_property
    def versions(self) -> dict[str, str]:
        """Each package → its version."""
        return {wheel.name: wheel.version for wheel in self.packages}


@dataclass(frozen=True)
class GitPin:
    """A branch of a repository at one commit (40 hexadecimal digits)."""

    branch: str
    commit: _Commit
    resolved: str = ""


@dataclass(frozen=True)
class PrecompiledPin:
    """The wheel from which a fork's build takes its compiled parts.

    Attributes:
        tree: Commit of the fork that the wheel was found for.
        upstream: Repository of the commit that was compiled.
        commit: That commit.
        variant: Variant that was asked for.
        path: Path of the wheel on the server of the wheels.
        sha256: Hash of the wheel.
        size: Bytes.
    """

    tree: _Commit
    upstream: str
    commit: _Commit
    architecture: str
    variant: str
    path: Annotated[_Inside, _Wheel]
    sha256: _Sha256
    size: _Bytes
    resolved: str = ""

    @property
    def file(self) -> str:
        """Name of the wheel."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class ImagePin:
    """An image reference at one manifest, for one architecture.

    Attributes:
        digest: "sha256:…" of the manifest for `architecture`.
        size: Compressed bytes of its layers, the most that a pull fetches.
        cuda: CUDA release that it was made with ("13.4.1"), by its own variables; "" where none
            says so, and in a lock that is older than this key.
        entrypoint: Words that it starts before a command; None in a lock that is older than this
            key.
        unanswered: Why its engine could not be asked about recipes, as the last whole deploy found;
            "" where it answered, or has not been asked. It does not make the pin another one.
    """

    digest: _Digest
    architecture: str
    size: _Bytes
    resolved: str = ""
    cuda: _Cuda = ""
    entrypoint: tuple[str, ...] | None = None
    unanswered: str = field(default="", compare=False)


@dataclass(frozen=True)
class FilePin:
    """One file of a hub repository.

    Attributes:
        path: Path inside the repository.
        size: Bytes.
        sha256: Hash of the content, for LFS files (the weights).
        blob: git's own id (SHA-1) of the content, for all others.
    """

    path: _Inside
    size: _Bytes
    sha256: _Sha256 | None = None
    blob: _Blob | None = None

    @property
    def cache_name(self) -> str:
        """The file's name in a hub cache."""
        return self.sha256 or self.blob or ""


@dataclass(frozen=True)
class CheckpointPin:
    """A hub repository at one commit, with its files.

    Attributes:
        asked: The revision that was asked for ("main").
        commit: The commit it stood for.
        files: Files of a complete snapshot.
        partial: Whether some of its files were not asked for.
        formats: Formats of weights in which its files were looked for.
        left_out: Bytes of the files that no engine loads, by top folder or name.
        experts: Its configuration's answer about a mixture of experts, as `architecture.experts`
            gives it; None: nobody asked, or it has none.
        refused_shapes: Shapes of a conversation that its chat template refuses, for recipes that do
            not say; None: it has no template, or nobody has tried it.
    """

    asked: str
    commit: _Commit
    files: tuple[FilePin, ...]
    partial: bool = False
    formats: tuple[str, ...] = ()
    left_out: Mapping[str, _Bytes] = field(default_factory=dict)
    resolved: str = ""
    experts: Literal["none", "plain", "quantised"] | None = None
    refused_shapes: tuple[TemplateShape, ...] | None = None

    @property
    def configuration(self) -> str:
        """The file that says what the model is, "" where there is none."""
        paths = {file.path for file in self.files}
        return next((name for name in CONFIGURATIONS if name in paths), "")

    @property
    def size(self) -> int:
        """Bytes of a complete snapshot."""
        return sum(file.size for file in self.files)

    def absent(self, blobs: Mapping[str, int]) -> list[str]:
        """Return the hashes of the files that a hub cache does not hold whole.

        Args:
            blobs: Name of each blob in it → bytes; an unfinished one ends with ".incomplete".
        """
        names = {file.cache_name: file.size for file in self.files if file.cache_name}
        return [name for name, size in names.items() if blobs.get(name) != size]

    def missing_bytes(self, blobs: Mapping[str, int]) -> int:
        """Return the bytes still to come, less unfinished files; ``blobs`` as in `absent`."""
        return sum(
            max(
                0,
                file.size
                - blobs.get(file.cache_name, blobs.get(f"{file.cache_name}.incomplete", 0)),
            )
            for file in self.files
        )


Pin: TypeAlias = PythonPin | GitPin | PrecompiledPin | ImagePin | CheckpointPin


@dataclass(frozen=True)
class Pins:
    """All resolved things.

    Attributes:
        python: Environment ("engine", "engine-build", "tools", "uv") → its packages. Read it with
            `lockstep.lock.packages`.
        git: Repository URL → commit.
        precompiled: Repository URL of a fork → the wheel with its compiled parts.
        images: Image reference as asked for → digest.
        checkpoints: Hub id → commit and files.
    """

    python: Mapping[str, PythonPin] = field(default_factory=dict)
    git: Mapping[str, GitPin] = field(default_factory=dict)
    precompiled: Mapping[str, PrecompiledPin] = field(default_factory=dict)
    images: Mapping[str, ImagePin] = field(default_factory=dict)
    checkpoints: Mapping[str, CheckpointPin] = field(default_factory=dict)

    @property
    def entries(self) -> dict[tuple[str, str], Pin]:
        """Section and key → pin, as `of` takes them."""
        sections = {section.name: getattr(self, section.name) for section in fields(self)}
        return {(name, key): pin for name, pins in sections.items() for key, pin in pins.items()}

    @classmethod
    def of(cls, entries: Mapping[tuple[str, str], Pin]) -> Pins:
        """Return a lock of these entries."""
        sections: dict[str, dict[str, Any]] = {}
        for (section, key), pin in entries.items():
            sections.setdefault(section, {})[key] = pin
        return cls(**sections)

    def __or__(self, later: Pins) -> Pins:
        """Return both together; where both have an entry, that of `later` wins."""
        return Pins.of(self.entries | later.entries)


P = TypeVar("P")


def entry_of(section: Mapping[str, P], key: str) -> P:
    """Return one entry of a section of the lock. ResolveError where there is none."""
    if key not in section:
        raise ResolveError(
            f"{key} is not resolved to anything exact", remedy="Run `lockstep lock`, or deploy."
        )
    return section[key]


def pins_of(pins_by_item: Mapping[moving.Item, Pin]) -> Pins:
    """Return a lock of the pins that were found."""
    return Pins.of({(item.section, item.key): pin for item, pin in pins_by_item.items()})


def missing(items: Iterable[moving.Item], pins: Pins) -> list[moving.Item]:
    """Return the items that are not pinned, or for another branch, revision or architecture."""
    return [item for item in items if not has(pins, item)]


def has(pins: Pins, item: moving.Item) -> bool:
    """Tell whether exactly this item is pinned, with all that follows from it."""
    pin = getattr(pins, item.section).get(item.key)
    if pin is None:
        return False
    match item:
        case moving.PythonItem():
            pin_facts = (pin.asked, pin.architecture, pin.python, pin.exclude_newer)
            return (
                pin_facts == (item.requirements, item.architecture, item.python, item.exclude_newer)
                and all(has(pins, tree) for tree in item.trees)
                and pin.trees == {tree.url: pins.git[tree.url].commit for tree in item.trees}
            )
        case moving.GitItem():
            return pin.branch == item.branch and item.commit in (None, pin.commit)
        case moving.PrecompiledItem():
            build_facts = (pin.upstream, pin.architecture, pin.variant)
            return (
                build_facts == (item.upstream, item.architecture, item.variant)
                and item.commit in (None, pin.commit)
                and has(pins, item.tree)
                and pin.tree == pins.git[item.key].commit
            )
        case moving.ImageItem():
            return bool(pin.architecture == item.architecture)
        case moving.CheckpointItem():
            chosen_files = gguf.chosen_files([file.path for file in pin.files], item.files)
            has_all = all(
                paths or pattern in pin.formats for pattern, paths in chosen_files.items()
            )
            has_all = has_all and set(item.formats) <= set(pin.formats)
            whole = not pin.partial or (bool(item.files or item.formats) and has_all)
            read = not (item.experts and pin.experts is None and pin.configuration)
            return pin.asked == item.revision and whole and read
