"""Values for systemd units: quoted so that systemd reads back exactly what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lockstep.core.errors import UnitError
from lockstep.onhost.engines.argv import is_flag

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%$_+-=./:,@^!~")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def text(value: str) -> str:
    """A free text (Description=, a path): specifiers escaped.

    Raises:
        UnitError: a control character, which would end the line or be lost.
    """
    _refuse_control(value)
    if value.endswith("\\"):
        raise UnitError("a unit's line cannot end with a backslash", found=repr(value)[-60:])
    return value.replace("%", "%%")


def word(value: str) -> str:
    """One argument of ExecStart=: no specifier, variable or escape of systemd is left in it."""
    return _quoted(_escaped(value).replace("$", "$$"))


def assignment(name: str, value: str) -> str:
    """One NAME=VALUE of Environment=, where "$" has no meaning."""
    return _quoted(_escaped(f"{name}={value}"))


def path(value: str) -> str:
    """One path in a list of paths (RequiresMountsFor=), where "$" has no meaning."""
    return _quoted(_escaped(value))


def environment_value(value: str) -> str:
    """A value in a file for EnvironmentFile=."""
    _refuse_control(value)
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def words(argv: Iterable[str]) -> str:
    """A command line for ExecStart= and its like, on one line."""
    return " ".join(map(word, argv))


def command(argv: Sequence[str], before: str | None = None) -> str:
    """A command line for ExecStart=, one flag with its values per line, as `lines` breaks it."""
    return " \\\n    ".join(map(words, lines(argv, before)))


def lines(argv: Iterable[str], before: str | None = None) -> list[list[str]]:
    """The words of a command line, a new line before each flag and before the word ``before``."""
    grouped: list[list[str]] = [[]]
    for item in argv:
        if (is_flag(item) or item == before) and grouped[0]:
            grouped.append([])
        grouped[-1].append(item)
    return grouped


def _refuse_control(value: str) -> None:
    if _CONTROL.search(value):
        raise UnitError("a unit cannot hold control characters", found=repr(value)[:60])


def _escaped(value: str) -> str:
    _refuse_control(value)
    return value.replace("\\", "\\\\").replace("%", "%%")


def _quoted(value: str) -> str:
    if value and set(value) <= _PLAIN:
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + value.replace('"', '\\"') + '"'
