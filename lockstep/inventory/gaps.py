"""The data of a host with some wrong keys; checks that need one of these keys are left out."""

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
    """Return the settings of a host; Unread for each key of ``gaps``.

    Args:
        name: The host.
        values: Key → its value, for right keys.
        gaps: Keys that are wrong, or that a misspelt key may stand for.
    """
    settings = _WithGaps(name=name, **{"models": {}, **values})
    object.__setattr__(settings, "_gaps", frozenset(gaps))
    return settings
