"""Conversion of plain values to frozen dataclasses.

The values come from inventories, recipes, the catalogue, the lock, and the host's models.json.

A field's type says what it takes: text, numbers, booleans, choices (`Literal`), tuples, mappings,
optionals of these, and other such dataclasses. A condition that no type can express is a rule
beside it: ``Annotated[int, between(1, 65535, "is not a port")]``.
"""

from __future__ import annotations

import datetime
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

T = TypeVar("T")
#: Makes an error of a sentence and the keywords where, found, allowed and remedy.
Fault = Callable[..., Exception]

_NAMES = {
    str: "text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_PLAIN = re.compile(r"[\w-]+")
_LOGIN = re.compile(r"//[^/]*@")


class SchemaFault(NamedTuple):
    """The reason why a value is refused; the sentence begins with its key."""

    fault: str  #: The fault ("is not a port").
    found: str = ""  #: The text shown of the value; "" shows the value itself.
    allowed: str = ""  #: Values that are accepted, with an example.
    remedy: str = ""  #: The next step.


@dataclass(frozen=True)
class Rule:
    """A condition on one value, beside its type in `Annotated`; any such function serves too."""

    fault: str  #: The message for a value that breaks the rule ("is not a port").
    #: Tells whether a value keeps the rule; a ValueError means that it does not.
    holds: Callable[[Any], object]
    allowed: str = ""  #: Values that are accepted, with an example.
    remedy: str = ""  #: The next step.
    has_password: bool = False  #: Whether the value may hold a password before its last "@".

    def __call__(self, value: Any) -> SchemaFault | None:
        """Return the reason to refuse the value, or None if it keeps the rule."""
        try:
            if self.holds(value):
                return None
        except ValueError:
            pass
        found_text = repr(value.rpartition("@")[2])[:80] if self.has_password else ""
        return SchemaFault(self.fault, found_text, self.allowed, self.remedy)


@dataclass(frozen=True, eq=False)
class ImpliedFields:
    """Fields of a dataclass that its place decides; first beside the class in `Annotated`."""

    values: Mapping[str, Any]


def between(least: float, most: float, fault: str, unit: str = "") -> Rule:
    """Return a rule for numbers of a range."""
    return Rule(fault, lambda value: least <= value <= most, f"{least} to {most}{unit}")


def pattern_rule(pattern: str, fault: str, allowed: str, **more: Any) -> Rule:
    """Return a rule for text that matches a pattern as a whole."""
    return Rule(fault, re.compile(pattern, re.ASCII).fullmatch, allowed, **more)


def one_of(names: Iterable[str]) -> Callable[[Any], SchemaFault | None]:
    """Return a rule for text that must be one of some names, if these are no `Literal`."""
    allowed_names = tuple(names)
    return lambda value: (
        None if value in allowed_names else _refusal_of_unknown(value, allowed_names)
    )


def _refusal_of_unknown(value: Any, allowed_names: Sequence[str]) -> SchemaFault:
    hint = spelling_hint(value, allowed_names) if isinstance(value, str) else ""
    return SchemaFault("is not known", _short_repr(value), ", ".join(allowed_names), hint)


def nearest_name(name: str, known_names: Iterable[str]) -> str:
    """Return the known name that is closest to a mistyped one, or ""."""
    import difflib  # Programs on a host start without it.

    return next(iter(difflib.get_close_matches(name, list(known_names), n=1)), "")


def spelling_hint(name: str, known_names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint at the known name closest to a mistyped one; ``otherwise`` if none is close."""
    near = nearest_name(name, known_names)
    return f"Did you mean {near!r}?" if near else otherwise


#: Stands beside `str` in `Annotated`: text of several lines, kept unchanged.
LINES = Rule("holds a NUL character", lambda text: "\0" not in text)


class _Faults(Exception):
    """The errors about a value and its parts, in their order."""

    def __init__(self, every: Sequence[Exception]) -> None:
        self.every = every


class KeyPlace(NamedTuple):
    """The place of a value: its file, its line if known, and its key."""

    file: str  #: The file.
    key: str  #: Path of the value inside the file ("models.qwen").
    error: Fault  #: Makes the error that is raised for every fault.
    strict: bool = True  #: Whether a key that nothing reads, or a broken rule, is a fault.
    where: str = ""  #: The file with the line.
    #: Whether the file is YAML. There, a key without a value is absent, and text has no blanks
    #: around it.
    yaml: bool = False

    def place_of_part(self, name: str | int, mapping: Any = None) -> KeyPlace:
        """Return the place of a field, of an entry of a mapping, or of an item of a list."""
        if isinstance(name, int):
            return self._replace(key=f"{self.key}[{name}]")
        # The name may be an address with a login, which is not shown.
        step = f".{name}" if _PLAIN.fullmatch(name) else f"[{_LOGIN.sub('//', name)!r}]"
        line = getattr(mapping, "lines", {}).get(name)
        where = f"{self.file}:{line}" if line else self.where
        return self._replace(key=(self.key + step).removeprefix("."), where=where)

    def fault(self, fault: str, found: str, allowed: str = "", remedy: str = "") -> _Faults:
        """Return the error about the value at this place."""
        summary, where = f"{self.key or 'the value'} {fault}", self.where or self.file
        return _Faults(
            [self.error(summary, where=where, found=found, allowed=allowed, remedy=remedy)]
        )


def first_fault(faults: Sequence[Exception]) -> Exception:
    """Return the first of several errors."""
    return faults[0]


def build(
    cls: type[T],
    values: Any,
    *,
    where: str,
    key: str = "",
    error: Fault,
    implied_fields: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> T:
    """Convert ``values`` to an instance of the dataclass ``cls``.

    Args:
        cls: A dataclass of the field types that this module knows.
        values: A mapping from field name to value; a missing field takes the dataclass's default.
        where: File that holds the values, for errors.
        key: Path of the value inside that file ("models.qwen"), for errors.
        error: Makes the error that is raised for every fault.
        implied_fields: Fields that the caller decides; ``values`` may not have them.
        strict: False ignores keys that no field has, and rules: the values are a record of our own,
            perhaps of another version.

    Raises:
        error: An unknown key, a missing key, a value of the wrong type, or one that breaks a rule.
    """
    try:
        return _build(cls, values, KeyPlace(where, key, error, strict), implied_fields or {})
    except _Faults as wrong:
        raise first_fault(wrong.every) from None


def convert(
    hint: Any,
    value: Any,
    *,
    where: str,
    key: str,
    error: Fault,
    of_all: Callable[[Sequence[Any]], Exception] = first_fault,
    strict: bool = True,
) -> Any:
    """Convert ``value`` to the type ``hint``; arguments and errors are as for `build`.

    `of_all` makes one error of all errors.
    """
    try:
        return _convert(hint, value, KeyPlace(where, key, error, strict))
    except _Faults as wrong:
        raise of_all(wrong.every) from None


def values_of(record: Any) -> Any:
    """Return the values of which `build` makes an equal dataclass; defaults are left out."""
    if is_dataclass(record):
        values = {field: getattr(record, field.name) for field in fields(record)}
        return {
            field.name: values_of(value)
            for field, value in values.items()
            if value != _default_of(field)
        }
    if isinstance(record, Mapping):
        return {name: values_of(value) for name, value in record.items()}
    return [values_of(item) for item in record] if isinstance(record, tuple) else record


def _default_of(field: Field[Any]) -> Any:
    """Return the default of a field; MISSING if it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def hints(cls: type) -> dict[str, Any]:
    """Return the field types of a dataclass by name, with postponed annotations evaluated."""
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls, include_extras=True)
    return _hints[cls]


_hints: dict[type, dict[str, Any]] = {}


#: What a key was called once → what it is called now: at the top of a file or of a host's data.
_FORMER_NAMES_AT_TOP = {"models": "checkpoints", "targets": "models"}
#: The same at every place that knows the present name, which only a model's data do.
_FORMER_NAMES = {"floor": "minimum", "memory_floor": "memory_minimum"}


def name_after_renaming(name: str, known_names: Collection[str], inside: str = "") -> str:
    """Return the known name of a key that was called `name` once at that place, or ""."""
    names = _FORMER_NAMES if inside else _FORMER_NAMES | _FORMER_NAMES_AT_TOP
    new_name = names.get(name, "")
    return new_name if new_name in known_names else ""


def unknown_key(
    name: str, known_names: Any, *, where: str, inside: str = "", error: Fault
) -> Exception:
    """Return the error for a key that nothing reads, with its present name or the nearest key."""
    if new_name := name_after_renaming(name, known_names, inside):
        key = f"{inside}.{name}" if inside else f"`{name}`"
        return error(f"{key} is called `{new_name}` now", where=where, remedy="Rename the key.")
    return error(
        f"unknown key {name!r}" + (f" in {inside}" if inside else ""),
        where=where,
        allowed=", ".join(sorted(known_names)),
        remedy=spelling_hint(name, known_names, "Remove it, or correct its name."),
    )


def _build(cls: type[T], values: Any, at: KeyPlace, implied_fields: Mapping[str, Any]) -> T:
    if not isinstance(values, Mapping):
        is_switch = values is True and "enabled" in hints(cls)
        remedy = 'Write {"enabled": True}.' if is_switch else ""
        # A secret may be written itself instead of its place.
        is_secret = getattr(cls, "is_secret", False)
        found = "a value that is not shown" if is_secret else _short_repr(values)
        remedy = 'Write {"file": "PATH"} or {"command": ("PROGRAM",)}.' if is_secret else remedy
        raise at.fault("must be a mapping", found, remedy=remedy)
    at = at._replace(yaml=hasattr(values, "lines"))
    known_fields = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    allowed_names = [name for name in known_fields if name not in implied_fields]
    wrong: list[Exception] = []
    for name in values:
        if at.strict and name not in allowed_names:
            where = at.place_of_part(str(name), values).where or at.file
            more = {"inside": at.key, "where": where}
            wrong.append(unknown_key(str(name), allowed_names, error=at.error, **more))
    has_unknown = bool(wrong)
    types_of = hints(cls)
    field_values, missing = dict(implied_fields), []
    in_order_of_file = [name for name in values if name in allowed_names]
    for name in dict.fromkeys((*in_order_of_file, *allowed_names)):
        place = at.place_of_part(name, values)
        default = _default_of(known_fields[name]) is not MISSING
        if name in values and not (at.yaml and default and values[name] is None):
            field_values[name] = _convert_part(types_of[name], values[name], place, wrong)
        elif not default:
            missing.append(place.key)
    # The unknown key may be the missing one, misspelt.
    if missing and not has_unknown:
        keys = ", ".join(missing)
        summary = f"{keys} {'is' if len(missing) == 1 else 'are'} missing"
        wrong.append(at.error(summary, where=at.where or at.file, remedy=f"Add {keys}."))
    if wrong:
        raise _Faults(wrong)
    return cls(**field_values)


def _convert_part(hint: Any, value: Any, at: KeyPlace, wrong: list[Exception]) -> Any:
    """Convert one of several values; add its errors to `wrong` and return None if there are any."""
    try:
        return _convert(hint, value, at)
    except _Faults as faults:
        wrong += faults.every
        return None


def _convert(hint: Any, value: Any, at: KeyPlace) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _convert_annotated(arguments[0], arguments[1:], value, at)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, at)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise at.fault(*_refusal_of_unknown(value, arguments))
        return value
    if is_dataclass(hint):
        return _build(typing.cast(type, hint), value, at, {})
    if origin in (tuple, list):
        if isinstance(value, str) or not isinstance(value, list | tuple):
            list_text = isinstance(value, str) and not at.yaml and f"{_short_repr(value)},"
            remedy = f"Write ({list_text}): the comma makes it a list." if list_text else ""
            raise at.fault("must be a list", _short_repr(value), remedy=remedy)
        wrong: list[Exception] = []
        items = [
            _convert_part(arguments[0], item, at.place_of_part(_item_label(item, index)), wrong)
            for index, item in enumerate(value)
        ]
        if wrong:
            raise _Faults(wrong)
        return origin(items)
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        if not isinstance(value, Mapping):
            raise at.fault("must be a mapping", _short_repr(value))
        if arguments[1] is Any:
            return value
        entries: dict[Any, Any] = {}
        wrong = []
        for name, item in value.items():
            place = at.place_of_part(str(name), value)
            key = _convert_part(arguments[0], str(name), place, wrong)
            entries[key] = _convert_part(arguments[1], item, place, wrong)
        if wrong:
            raise _Faults(wrong)
        return entries
    return _scalar(hint, value, at)


def _convert_annotated(hint: Any, rules: tuple[Any, ...], value: Any, at: KeyPlace) -> Any:
    if isinstance(rules[0], ImpliedFields):
        converted_value, rules = _build(hint, value, at, rules[0].values), rules[1:]
    elif rules[0] is LINES and isinstance(value, str):
        converted_value = value
    elif hint in _NAMES:
        converted_value = _scalar(hint, value, at, _allowed_text(rules))
    else:
        converted_value = _convert(hint, value, at)
    # What a deploy of another version wrote is not judged by the rules of this one.
    for rule in rules if at.strict else ():
        refusal = rule(converted_value)
        if refusal is not None:
            # An owner wrote a mapping, and not our class.
            given_value = value if isinstance(value, Mapping) else converted_value
            fault, found_text, allowed_text, remedy = refusal
            raise at.fault(fault, found_text or _short_repr(given_value), allowed_text, remedy)
    return converted_value


def _allowed_text(rules: Sequence[Any]) -> str:
    """Return the values that rules accept, in words; "" if no rule says."""
    return "; ".join(rule.allowed for rule in rules if isinstance(rule, Rule) and rule.allowed)


def _convert_union(arguments: tuple[Any, ...], value: Any, at: KeyPlace) -> Any:
    if value is None and type(None) in arguments:
        return None
    choices = [item for item in arguments if item is not type(None)]
    if len(choices) == 1:
        return _convert(choices[0], value, at)
    for hint in choices:
        kind = _bare_hint(hint)
        alike = isinstance(value, Mapping) if is_dataclass(kind) else type(value) is kind
        if alike or (kind is float and type(value) is int):
            return _convert(hint, value, at)
    names = dict.fromkeys(_NAMES.get(_bare_hint(hint), "a mapping") for hint in choices)
    raise at.fault("must be " + " or ".join(names), _short_repr(value))


def _item_label(item: Any, index: int) -> str | int:
    """Return the label of an item of a list: its own name or path, else its number."""
    if isinstance(item, Mapping):
        names = (item[key] for key in ("name", "path") if isinstance(item.get(key), str))
        return next(names, index)
    return index


def _bare_hint(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _scalar(hint: type, value: Any, at: KeyPlace, allowed_text: str = "") -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is str and isinstance(value, datetime.date):
        return value.isoformat()
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise at.fault(
            f"must be {_NAMES.get(hint, hint.__name__)}", _short_repr(value), allowed_text
        )
    if isinstance(value, str):
        value = value.strip() if at.yaml else value
        # A reason in a record may have several lines; nobody writes it into a line of a file.
        if at.strict and ("\n" in value or "\0" in value):
            raise at.fault("spans lines", _short_repr(value))
    return value


def _short_repr(value: Any) -> str:
    return repr(str(value) if isinstance(value, Path) else value)[:80]


def fault_sentence(summary: str, found_text: str = "", allowed_text: str = "") -> str:
    """Return a fault of this module as one sentence without its full stop."""
    return "".join(
        (
            summary,
            found_text and f"; found {found_text}",
            allowed_text and f"; allowed: {allowed_text}",
        )
    )
