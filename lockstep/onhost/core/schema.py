"""Plain values into frozen dataclasses: inventories, recipes, the catalogue, the lock, and
the host's own targets.json.

A field's type says what it takes: text, numbers, booleans, choices (`Literal`), tuples, mappings,
optionals of these, and other such dataclasses. What no type can refuse is a rule beside it:
``Annotated[int, between(1, 65535, "is not a port")]``.
"""

from __future__ import annotations

import datetime
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
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


class Refusal(NamedTuple):
    """Why a value is refused; the sentence begins with its key."""

    fault: str  #: What is wrong ("is not a port").
    found: str = ""  #: What is shown of the value; "" shows the value itself.
    allowed: str = ""  #: What would have been accepted, with an example.
    remedy: str = ""  #: The next step.


@dataclass(frozen=True)
class Rule:
    """A condition on one value; beside its type in `Annotated`, as any function of its kind."""

    fault: str  #: What is said of a value that breaks it ("is not a port").
    #: Whether a value keeps it; a ValueError means that it does not.
    holds: Callable[[Any], object]
    allowed: str = ""  #: What it accepts, with an example.
    remedy: str = ""  #: The next step.
    hidden: bool = False  #: Whether the value may hold a password before its last "@".

    def __call__(self, value: Any) -> Refusal | None:
        """Why the value is refused, None for one that keeps the rule."""
        try:
            if self.holds(value):
                return None
        except ValueError:
            pass
        found = repr(value.rpartition("@")[2])[:80] if self.hidden else ""
        return Refusal(self.fault, found, self.allowed, self.remedy)


@dataclass(frozen=True, eq=False)
class Implied:
    """Fields of a dataclass that its place decides; the first beside the class in `Annotated`."""

    values: Mapping[str, Any]


def between(least: float, most: float, fault: str, unit: str = "") -> Rule:
    """A rule for numbers of a range."""
    return Rule(fault, lambda value: least <= value <= most, f"{least} to {most}{unit}")


def like(pattern: str, fault: str, allowed: str, **more: Any) -> Rule:
    """A rule for text that matches a pattern as a whole."""
    return Rule(fault, re.compile(pattern, re.ASCII).fullmatch, allowed, **more)


def one_of(names: Iterable[str]) -> Callable[[Any], Refusal | None]:
    """A rule for text that is one of some names, where these are no `Literal`."""
    allowed = tuple(names)
    return lambda value: None if value in allowed else _refusal_of_unknown(value, allowed)


def _refusal_of_unknown(value: Any, allowed: Sequence[str]) -> Refusal:
    hint = spelling_hint(value, allowed) if isinstance(value, str) else ""
    return Refusal("is not known", _shown(value), ", ".join(allowed), hint)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that a mistyped one is most like, "" for none."""
    import difflib  # Programs on a host start without it.

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def spelling_hint(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The hint at the known name that a mistyped one is most like; ``otherwise`` for none."""
    near = nearest_name(name, known)
    return f"Did you mean {near!r}?" if near else otherwise


#: Beside `str` in `Annotated`: text of several lines, kept as it is.
LINES = Rule("holds a NUL character", lambda text: "\0" not in text)


class _Faults(Exception):
    """The errors about a value and its parts, in their order."""

    def __init__(self, every: Sequence[Exception]) -> None:
        self.every = every


class Place(NamedTuple):
    """Where a value stands: its file, its line where that is known, and its key."""

    file: str  #: The file.
    key: str  #: Path of the value inside the file ("targets.qwen").
    error: Fault  #: Makes the error that is raised for every fault.
    strict: bool = True  #: Whether a key that nothing reads is a fault.
    where: str = ""  #: The file with the line.
    #: Whether the file is YAML: a key without a value is absent there, and text has no blanks
    #: around it.
    yaml: bool = False

    def at(self, name: str | int, mapping: Any = None) -> Place:
        """The place of one field, one entry of a mapping, or one item of a list (a number)."""
        if isinstance(name, int):
            return self._replace(key=f"{self.key}[{name}]")
        # The name may be an address with a login.
        step = f".{name}" if _PLAIN.fullmatch(name) else f"[{_LOGIN.sub('//', name)!r}]"
        line = getattr(mapping, "lines", {}).get(name)
        where = f"{self.file}:{line}" if line else self.where
        return self._replace(key=(self.key + step).removeprefix("."), where=where)

    def fault(self, fault: str, found: str, allowed: str = "", remedy: str = "") -> _Faults:
        """The error about the value at this place."""
        what, where = f"{self.key or 'the value'} {fault}", self.where or self.file
        return _Faults([self.error(what, where=where, found=found, allowed=allowed, remedy=remedy)])


def first_fault(faults: Sequence[Exception]) -> Exception:
    """The first of several errors."""
    return faults[0]


def build(
    cls: type[T],
    values: Any,
    *,
    where: str,
    key: str = "",
    error: Fault,
    implied: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> T:
    """``values`` as an instance of the dataclass ``cls``.

    Args:
        cls: A dataclass of the field types that this module knows.
        values: A mapping from field name to value; a missing field takes the dataclass's default.
        where: File that holds the values, for errors.
        key: Path of the value inside that file ("targets.qwen"), for errors.
        error: Makes the error that is raised for every fault.
        implied: Fields that the caller decides; ``values`` may not have them.
        strict: False passes over keys that no field has.

    Raises:
        error: an unknown key, a missing key, a value of the wrong type, or one that breaks a rule.
    """
    try:
        return _build(cls, values, Place(where, key, error, strict), implied or {})
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
) -> Any:
    """``value`` as the type ``hint`` says; arguments and errors as for `build`.

    `of_all` makes the error that is raised of all that there are.
    """
    try:
        return _convert(hint, value, Place(where, key, error))
    except _Faults as wrong:
        raise of_all(wrong.every) from None


def hints(cls: type) -> dict[str, Any]:
    """Field name → type of a dataclass, with postponed annotations evaluated."""
    if cls not in _hints:
        _hints[cls] = typing.get_type_hints(cls, include_extras=True)
    return _hints[cls]


_hints: dict[type, dict[str, Any]] = {}


def unknown_key(name: str, known: Any, *, where: str, inside: str = "", error: Fault) -> Exception:
    """The error for a key that nothing reads, with the nearest key that something reads."""
    return error(
        f"unknown key {name!r}" + (f" in {inside}" if inside else ""),
        where=where,
        allowed=", ".join(sorted(known)),
        remedy=spelling_hint(name, known, "Remove it, or correct its name."),
    )


def _build(cls: type[T], values: Any, at: Place, implied: Mapping[str, Any]) -> T:
    if not isinstance(values, Mapping):
        switched = values is True and "enabled" in hints(cls)
        remedy = 'Write {"enabled": True}.' if switched else ""
        raise at.fault("must be a mapping", _shown(values), remedy=remedy)
    at = at._replace(yaml=hasattr(values, "lines"))
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    allowed = [name for name in known if name not in implied]
    wrong: list[Exception] = []
    for name in values:
        if at.strict and name not in allowed:
            where = at.at(str(name), values).where or at.file
            more = {"inside": at.key, "where": where}
            wrong.append(unknown_key(str(name), allowed, error=at.error, **more))
    mistyped = bool(wrong)
    types_of = hints(cls)
    taken, missing = dict(implied), []
    for name in allowed:
        here = at.at(name, values)
        default = known[name].default is not MISSING or known[name].default_factory is not MISSING
        if name in values and not (at.yaml and default and values[name] is None):
            taken[name] = _convert_part(types_of[name], values[name], here, wrong)
        elif not default:
            missing.append(here.key)
    # One that is not known may be it.
    if missing and not mistyped:
        keys = ", ".join(missing)
        what = f"{keys} {'is' if len(missing) == 1 else 'are'} missing"
        wrong.append(at.error(what, where=at.where or at.file, remedy=f"Add {keys}."))
    if wrong:
        raise _Faults(wrong)
    return cls(**taken)


def _convert_part(hint: Any, value: Any, at: Place, wrong: list[Exception]) -> Any:
    """One of several values; its errors are added to `wrong`, and it is then None."""
    try:
        return _convert(hint, value, at)
    except _Faults as found:
        wrong += found.every
        return None


def _convert(hint: Any, value: Any, at: Place) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:], value, at)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, at)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise at.fault(*_refusal_of_unknown(value, arguments))
        return value
    if is_dataclass(hint):
        return _build(typing.cast(type, hint), value, at, {})
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            listed = isinstance(value, str) and not at.yaml and f"{_shown(value)},"
            remedy = f"Write ({listed}): the comma makes it a list." if listed else ""
            raise at.fault("must be a list", _shown(value), remedy=remedy)
        wrong: list[Exception] = []
        items = tuple(
            _convert_part(arguments[0], item, at.at(_label(item, index)), wrong)
            for index, item in enumerate(value)
        )
        if wrong:
            raise _Faults(wrong)
        return items
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        if not isinstance(value, Mapping):
            raise at.fault("must be a mapping", _shown(value))
        if arguments[1] is Any:
            return value
        found: dict[Any, Any] = {}
        wrong = []
        for name, item in value.items():
            here = at.at(str(name), value)
            key = _convert_part(arguments[0], str(name), here, wrong)
            found[key] = _convert_part(arguments[1], item, here, wrong)
        if wrong:
            raise _Faults(wrong)
        return found
    return _scalar(hint, value, at)


def _annotated(hint: Any, rules: tuple[Any, ...], value: Any, at: Place) -> Any:
    if isinstance(rules[0], Implied):
        found, rules = _build(hint, value, at, rules[0].values), rules[1:]
    elif rules[0] is LINES and isinstance(value, str):
        found = value
    elif hint in _NAMES:
        found = _scalar(hint, value, at, _allowed(rules))
    else:
        found = _convert(hint, value, at)
    for rule in rules:
        refused = rule(found)
        if refused is not None:
            fault, shown, allowed, remedy = refused
            raise at.fault(fault, shown or _shown(found), allowed, remedy)
    return found


def _allowed(rules: Sequence[Any]) -> str:
    """The values that rules accept, in words; "" where none says."""
    return "; ".join(rule.allowed for rule in rules if isinstance(rule, Rule) and rule.allowed)


def _one_of(arguments: tuple[Any, ...], value: Any, at: Place) -> Any:
    if value is None and type(None) in arguments:
        return None
    rest = [item for item in arguments if item is not type(None)]
    if len(rest) == 1:
        return _convert(rest[0], value, at)
    for hint in rest:
        kind = _kind(hint)
        alike = isinstance(value, Mapping) if is_dataclass(kind) else type(value) is kind
        if alike or (kind is float and type(value) is int):
            return _convert(hint, value, at)
    names = dict.fromkeys(_NAMES.get(_kind(hint), "a mapping") for hint in rest)
    raise at.fault("must be " + " or ".join(names), _shown(value))


def _label(item: Any, index: int) -> str | int:
    """What tells one item of a list from the others: its own name or path, else its number."""
    if isinstance(item, Mapping):
        names = (item[key] for key in ("name", "path") if isinstance(item.get(key), str))
        return next(names, index)
    return index


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _scalar(hint: type, value: Any, at: Place, allowed: str = "") -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is str and isinstance(value, datetime.date):
        return value.isoformat()
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise at.fault(f"must be {_NAMES.get(hint, hint.__name__)}", _shown(value), allowed)
    if isinstance(value, str):
        value = value.strip() if at.yaml else value
        if "\n" in value or "\0" in value:
            raise at.fault("spans lines", _shown(value))
    return value


def _shown(value: Any) -> str:
    return repr(str(value) if isinstance(value, Path) else value)[:80]


def sentence(what: str, found: str = "", allowed: str = "") -> str:
    """A fault of this module's as one sentence without its end."""
    return "".join((what, found and f"; found {found}", allowed and f"; allowed: {allowed}"))
