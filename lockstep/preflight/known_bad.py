"""Lists of what was reported to fail on a Spark, each entry with its source: data, and no code.

`catalogue/kernels.yaml` and `catalogue/drivers.yaml` have this form; `kernels` and `drivers` say
what an entry of theirs has besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lockstep.core.errors import CatalogueError
from lockstep.core.figures import Date, Text
from lockstep.core.yamlfile import read_mapping
from lockstep.onhost.core import schema


@dataclass(frozen=True, kw_only=True)
class KnownBad:
    """One entry of a list.

    Attributes:
        what: What is wrong with it.
        remedy: What to do.
        source: Who reported it.
        date: ISO date of the reading.
        release: How the version begins, "" where only the sign tells.
        sign: What shows the fault by itself, "" for nothing.
    """

    what: Text
    remedy: Text
    source: Text
    date: Date
    release: str = ""
    sign: str = ""

    def names(self, version: str) -> bool:
        """Whether a version is one of those that the entry is about."""
        return bool(self.release) and version.startswith(self.release)


Entry = TypeVar("Entry", bound=KnownBad)


def load(path: Path, entry: type[Entry]) -> tuple[Entry, ...]:
    """Read one list.

    Args:
        path: The file.
        entry: The class of its entries.

    Raises:
        CatalogueError: unreadable, a key that is missing or not known, or a wrong value.
    """
    found = []
    for name, raw in read_mapping(path, CatalogueError).items():
        one = schema.build(entry, raw, where=str(path), key=name, error=CatalogueError)
        if not one.release and not one.sign:
            raise CatalogueError(f"{name} has neither release nor sign", where=str(path))
        found.append(one)
    return tuple(found)
