"""Typed values out of one YAML mapping; every complaint names file, line, key and finding."""

from __future__ import annotations

import datetime
from dataclasses import fields
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.yamlfile import place, refuse_unknown_keys


def keys_of(of: type) -> tuple[str, ...]:
    """The field names of a dataclass: the keys that a mapping for it may have."""
    return tuple(item.name for item in fields(of))


class Reader:
    """Takes typed values out of one mapping; every complaint names file, line and key."""

    def __init__(self, mapping: Any, where: str, inside: str, allowed: tuple[str, ...]) -> None:
        self.where = where
        self.inside = inside
        if not isinstance(mapping, dict):
            raise RecipeError(f"{inside} must be a mapping", where=where, found=_shown(mapping))
        refuse_unknown_keys(mapping, allowed, where, inside, RecipeError)
        self.mapping = mapping

    def fail(self, key: str, expected: str) -> RecipeError:
        return RecipeError(
            f"{self.inside}.{key} must be {expected}",
            where=place(self.where, self.mapping, key),
            found=_shown(self.mapping.get(key)),
        )

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self.mapping.get(key)
        if value is None and not required:
            return None
        if isinstance(value, datetime.date):
            value = value.isoformat()
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, "a non-empty text")
        return value.strip()

    def flag(self, key: str) -> bool | None:
        value = self.mapping.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in allowed:
            raise self.fail(key, "one of " + ", ".join(allowed))
        return value

    def items(self, key: str) -> list[Any]:
        value = self.mapping.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fail(key, "a list")
        return value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return f"{shown[:60]} ({type(value).__name__})" if len(shown) <= 60 else type(value).__name__
