"""A host's data of which some keys are wrong: what needs one of these is not judged by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lockstep.core.errors import Unread
from lockstep.inventory.settings import Settings


class _WithGaps(Settings):
    def __getattribute__(self, name: str) -> Any:
        gaps = object.__getattribute__(self, "__dict__").get("_gaps", ())
        if name in gaps:
            raise Unread(name)
        return super().__getattribute__(name)


def settings_with_gaps(name: str, values: Mapping[str, Any], gaps: Collection[str]) -> Settings:
    """The settings of a host, as far as they can be read; Unread for each key of ``gaps``.

    Args:
        name: The host.
        values: Key → its value, of those that are right.
        gaps: Keys that are wrong, or that a wrong one may stand for.
    """
    settings = _WithGaps(name=name, **{"targets": {}, **values})
    object.__setattr__(settings, "_gaps", frozenset(gaps))
    return settings
