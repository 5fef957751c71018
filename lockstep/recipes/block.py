"""The `lockstep:` block of a recipe: what the community's format has no place for.

Unknown keys are errors here, unlike at the top level, where that format keeps them. A figure never
stands without its source and date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from lockstep.core.figures import Figure, parse_figure
from lockstep.core.reader import Reader, keys_of
from lockstep.onhost.engines import ENGINES, Engine

# What `docker run --ulimit` knows (docker/go-units, ulimit.go, 0.5.0).
_ULIMITS = frozenset(
    (
        *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile"),
        *("nproc", "rss", "rtprio", "rttime", "sigpending", "stack"),
    )
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Draft:
    """The speculative decoder's own weights.

    Attributes:
        model: Hugging Face id.
        revision: Commit, tag or branch, or None where it is not pinned.
        licence: SPDX id of these weights' own licence; None: nobody has established it.
    """

    model: str
    revision: str | None = None
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Borrow:
    """Files that the weights repository lacks and another repository has."""

    model: str
    files: tuple[str, ...]
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class LockstepBlock:
    """What a recipe says under `lockstep:`; every key may be absent.

    Attributes:
        engine: Which engine's flags the command holds; None where the runtime is neither.
        draft: The draft model's repository.
        borrow: Files to take from other repositories, for example config.json.
        licence: SPDX id of the weights' licence; None means that nobody has established it.
        licence_source: Where that licence was read.
        moe: Whether the model is a mixture of experts; decides the freeze guard.
        vision: Whether this setup is claimed to read images.
        merges_roles: Whether consecutive messages of one role are accepted.
        memory: Memory held while serving, KV cache included (GiB); what the start gate asks for.
        start_seconds: Seconds from start to ready, as published; None when nobody published it.
        engine_versions: Engine versions whose parser knows these flags ("<0.20"); "" means any.
        ulimits: Container limits the engine needs, in `docker run --ulimit` terms.
        figures: What was published about this setup.
        known_bad: Why this setup must not be deployed, or None.
    """

    engine: Engine | None = None
    draft: Draft | None = None
    borrow: tuple[Borrow, ...] = ()
    licence: str | None = None
    licence_source: str | None = None
    moe: bool | None = None
    vision: bool | None = None
    merges_roles: bool | None = None
    memory: Figure | None = None
    start_seconds: Figure | None = None
    engine_versions: str = ""
    ulimits: Mapping[str, int] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    known_bad: str | None = None

    @property
    def memory_gib(self) -> float | None:
        """GiB the engine holds while serving, or None where nobody published it."""
        return float(self.memory.value) if self.memory else None


def _parse_draft(raw: Any, where: str) -> Draft:
    reader = Reader(raw, where, "lockstep.draft", keys_of(Draft))
    return Draft(
        model=_hub_id(reader),
        revision=reader.text("revision"),
        licence=reader.text("licence"),
    )


def _parse_borrow(raw: Any, where: str) -> Borrow:
    reader = Reader(raw, where, "lockstep.borrow[]", keys_of(Borrow))
    files = reader.items("files")
    if not files or not all(_is_plain_file(name) for name in files):
        raise reader.fail("files", "a list of file names inside the repository")
    return Borrow(
        model=_hub_id(reader),
        files=tuple(files),
        revision=reader.text("revision"),
    )


def _hub_id(reader: Reader) -> str:
    model = cast(str, reader.text("model", required=True))
    # A part of a folder's name, and of an address.
    if not _HUB_ID.fullmatch(model) or ".." in model:
        raise reader.fail("model", "a Hugging Face id (ORGANISATION/NAME)")
    return model


def _is_plain_file(name: Any) -> bool:
    return (
        isinstance(name, str)
        and bool(name)
        and not name.startswith(("/", "-"))
        and ".." not in name.split("/")
    )


def _parse_ulimits(reader: Reader) -> dict[str, int]:
    limits = reader.mapping.get("ulimits") or {}
    if not isinstance(limits, dict) or not all(
        key in _ULIMITS and isinstance(value, int) and not isinstance(value, bool) and value >= -1
        for key, value in limits.items()
    ):
        raise reader.fail(
            "ulimits",
            "a mapping of limit name to a whole number (-1: unlimited); names: "
            + ", ".join(sorted(_ULIMITS)),
        )
    return dict(limits)


def _engine(reader: Reader) -> Engine | None:
    name = reader.choice("engine", tuple(ENGINES))
    return None if name is None else ENGINES[name]


def _parse_versions(reader: Reader) -> str:
    versions = reader.text("engine_versions") or ""
    try:
        SpecifierSet(versions)
    except InvalidSpecifier as fault:
        raise reader.fail(
            "engine_versions", "a version specifier such as '>=0.18,<0.20'"
        ) from fault
    return versions


def parse_block(raw: Any, where: str) -> LockstepBlock:
    """The `lockstep:` value of the recipe at ``where`` (None: an empty block).

    Raises:
        RecipeError: an unknown key (named with the allowed set), or a value of the wrong kind.
    """
    if raw is None:
        return LockstepBlock()
    reader = Reader(raw, where, "lockstep", keys_of(LockstepBlock))
    memory, start = reader.mapping.get("memory"), reader.mapping.get("start_seconds")
    draft = reader.mapping.get("draft")
    return LockstepBlock(
        engine=_engine(reader),
        draft=None if draft is None else _parse_draft(draft, where),
        borrow=tuple(_parse_borrow(item, where) for item in reader.items("borrow")),
        licence=reader.text("licence"),
        licence_source=reader.text("licence_source"),
        moe=reader.flag("moe"),
        vision=reader.flag("vision"),
        merges_roles=reader.flag("merges_roles"),
        memory=None
        if memory is None
        else parse_figure(memory, where, "lockstep.memory", what="memory held", unit="GiB"),
        start_seconds=None
        if start is None
        else parse_figure(start, where, "lockstep.start_seconds", what="start to ready", unit="s"),
        engine_versions=_parse_versions(reader),
        ulimits=_parse_ulimits(reader),
        figures=tuple(
            parse_figure(item, where, "lockstep.core.figures[]") for item in reader.items("figures")
        ),
        known_bad=reader.text("known_bad"),
    )
