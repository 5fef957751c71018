"""Plain values into frozen dataclasses; a wrong key or type is an error a user can act on."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin

from lockstep.errors import InventoryError

T = TypeVar("T")

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}


def build(cls: type[T], values: Any, *, where: str, key: str = "") -> T:
    """``values`` as an instance of the dataclass ``cls``.

    Args:
        cls: A dataclass whose fields are text, numbers, booleans, tuples, mappings, optionals of
            these, or other such dataclasses.
        values: A mapping from field name to value; a missing field takes the dataclass's default.
        where: File that holds the values, for errors.
        key: Path of the value inside that file ("targets.qwen"), for errors.

    Raises:
        InventoryError: an unknown key, a missing key, or a value of the wrong type.
    """
    if not isinstance(values, Mapping):
        raise _wrong(key, where, "a mapping", values)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown_key(str(name), known, where=where, inside=key)
    types_of = hints(cls)
    taken: dict[str, Any] = {}
    for name, field in known.items():
        path = f"{key}.{name}" if key else name
        if name in values:
            taken[name] = convert(types_of[name], values[name], where=where, key=path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InventoryError(f"{path} is missing", where=where, remedy=f"Add {path}.")
    return cls(**taken)


def hints(cls: type) -> dict[str, Any]:
    """Field name → type of a dataclass, with postponed annotations evaluated."""
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls)
    return _hints[cls]


_hints: dict[type, dict[str, Any]] = {}


def unknown_key(name: str, known: Any, *, where: str, inside: str = "") -> InventoryError:
    """The error for a key that nothing reads, with the nearest key that something reads."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return InventoryError(
        f"unknown key {name!r}" + (f" in {inside}" if inside else ""),
        where=where,
        allowed=", ".join(sorted(known)),
        remedy=f"Did you mean {near[0]!r}?" if near else "Remove it, or correct its name.",
    )


def convert(hint: Any, value: Any, *, where: str, key: str) -> Any:
    """``value`` as the type ``hint`` says, or an InventoryError that names file and key."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        rest = [item for item in arguments if item is not type(None)]
        return convert(rest[0], value, where=where, key=key)
    if is_dataclass(hint):
        return build(typing.cast(type, hint), value, where=where, key=key)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise _wrong(key, where, "a list", value)
        return tuple(
            convert(arguments[0], item, where=where, key=f"{key}[{index}]")
            for index, item in enumerate(value)
        )
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        if not isinstance(value, Mapping):
            raise _wrong(key, where, "a mapping", value)
        return {
            str(name): convert(arguments[1], item, where=where, key=f"{key}.{name}")
            for name, item in value.items()
        }
    return _scalar(hint, value, where, key)


def _scalar(hint: type, value: Any, where: str, key: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _wrong(key, where, _NAMES.get(hint, hint.__name__), value)
    if isinstance(value, str) and ("\n" in value or "\0" in value):
        raise InventoryError(f"{key} spans lines", where=where, found=repr(value)[:60])
    return value


def _wrong(key: str, where: str, expected: str, value: Any) -> InventoryError:
    return InventoryError(
        f"{key or 'the value'} must be {expected}", where=where, found=repr(value)[:60]
    )
