"""Flags and variables that an engine no longer knows, from ``catalogue/engines.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from lockstep.engine_names import release
from lockstep.errors import CatalogueError
from lockstep.yamlfile import read_mapping, refuse_unknown_keys


@dataclass(frozen=True, slots=True)
class Removal:
    """One flag or variable: the release that lacks it, and what took its place."""

    name: str
    since: Version
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Removals:
    """What one engine took away, and how that is known."""

    source: str = ""
    flags: tuple[Removal, ...] = ()
    environment: tuple[Removal, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineTable:
    """Removals by engine name."""

    engines: Mapping[str, Removals] = field(default_factory=dict)

    def missing(
        self,
        engine: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        version: str | None,
    ) -> list[Removal]:
        """What a command line and environment name that this version is known to lack.

        Of an unknown version nothing is known, so the list is empty.
        """
        known = release(version)
        table = self.engines.get(engine)
        if known is None or table is None:
            return []
        used = {word.split("=", 1)[0].replace("_", "-") for word in argv if word.startswith("--")}
        return [
            *(item for item in table.flags if item.name in used and item.since <= known),
            *(
                item
                for item in table.environment
                if item.name in environment and item.since <= known
            ),
        ]


def load_engine_table(catalogue: Path) -> EngineTable:
    """Read ``engines.yaml``.

    Raises:
        CatalogueError: unreadable, an unknown key, or a version that is none.
    """
    path = catalogue / "engines.yaml"
    return EngineTable(
        {engine: _removals(raw, path) for engine, raw in read_mapping(path, CatalogueError).items()}
    )


def _removals(raw: Any, path: Path) -> Removals:
    if not isinstance(raw, dict):
        raise CatalogueError("an engine must be a mapping", where=str(path))
    allowed = ("version", "source", "flags", "environment")
    refuse_unknown_keys(raw, allowed, str(path), "an engine", CatalogueError)
    return Removals(
        source=str(raw.get("source", "")),
        flags=_list(raw.get("flags"), raw, path),
        environment=_list(raw.get("environment"), raw, path),
    )


def _list(entries: Any, raw: Mapping[str, Any], path: Path) -> tuple[Removal, ...]:
    removals = []
    for name, detail in (entries or {}).items():
        detail = detail or {}
        refuse_unknown_keys(detail, ("gone_in", "instead"), str(path), name, CatalogueError)
        try:
            since = Version(str(detail.get("gone_in", raw.get("version"))))
        except InvalidVersion as fault:
            raise CatalogueError(
                f"{name}: no version", where=str(path), found=str(fault)
            ) from fault
        removals.append(Removal(name, since, detail.get("instead")))
    return tuple(removals)
