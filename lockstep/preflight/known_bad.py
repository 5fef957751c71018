"""Lists of what was reported to fail on a Spark, each entry with its source: data, and no code.

`catalogue/kernels.yaml` and `catalogue/drivers.yaml` have this form; which optional keys a list
takes, its reader says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.core.errors import CatalogueError
from lockstep.core.yamlfile import place, read_mapping, refuse_unknown_keys

_NEEDED = ("what", "remedy", "source", "date")


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One entry of a list.

    Attributes:
        what: What is wrong with it.
        remedy: What to do.
        source: Who reported it.
        release: How the version begins, "" where only the sign tells.
        cure: What makes the fault go away without another version, "" for nothing.
        sign: What shows the fault by itself, "" for nothing.
        breaks: What does not work with it, "" where nothing is known to be certain.
    """

    what: str
    remedy: str
    source: str
    release: str = ""
    cure: str = ""
    sign: str = ""
    breaks: str = ""

    def names(self, version: str) -> bool:
        """Whether a version is one of those that the entry is about."""
        return bool(self.release) and version.startswith(self.release)


def load(path: Path, optional: Mapping[str, str | None]) -> tuple[KnownBad, ...]:
    """Read one list.

    Args:
        path: The file.
        optional: Key that an entry may have → the only value that it may have, None for any text.

    Raises:
        CatalogueError: unreadable, a key that is missing or not known, or a wrong value.
    """
    raw = read_mapping(path, CatalogueError)
    return tuple(_entry(name, entry, path, optional) for name, entry in raw.items())


def _entry(name: str, raw: Any, path: Path, optional: Mapping[str, str | None]) -> KnownBad:
    if not isinstance(raw, dict):
        raise CatalogueError(f"{name} must be a mapping", where=str(path))
    refuse_unknown_keys(raw, (*_NEEDED, "release", *optional), str(path), name, CatalogueError)
    told = [] if raw.get("release") or raw.get("sign") else ["release"]
    missing = told + [key for key in _NEEDED if not raw.get(key)]
    if missing:
        raise CatalogueError(f"{name} lacks {', '.join(missing)}", where=str(path))
    for key, allowed in optional.items():
        if allowed is not None and raw.get(key, allowed) != allowed:
            raise CatalogueError(
                f"{name}: {key} is not known",
                where=place(str(path), raw, key),
                found=repr(raw[key]),
                allowed=allowed,
            )
    return KnownBad(**{key: str(value) for key, value in raw.items() if key != "date"})
