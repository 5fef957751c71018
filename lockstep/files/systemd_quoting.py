"""Quoting of values for systemd units, so that systemd reads back exactly the same value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lockstep.core.errors import UnitError
from lockstep.onhost.engines.command_line_flags import is_flag

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%$_+-=./:,@^!~")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def free_text(value: str) -> str:
    """Return a free text (Description=, a path) with its specifiers escaped.

    Raises:
        UnitError: a control character, which would end the line or be lost, or a backslash at the
            end.
    """
    _refuse_control(value)
    if value.endswith("\\"):
        raise UnitError("a unit's line cannot end with a backslash", found=repr(value)[-60:])
    return value.replace("%", "%%")


def quoted_argument(value: str) -> str:
    """Return one argument of ExecStart= without a specifier, variable or escape of systemd."""
    return _quote(_escape(value).replace("$", "$$"))


def assignment(name: str, value: str) -> str:
    """Return one NAME=VALUE of Environment=, where "$" has no meaning."""
    return _quote(_escape(f"{name}={value}"))


def quoted_path(value: str) -> str:
    """Return one path in a list of paths (RequiresMountsFor=), where "$" has no meaning."""
    return _quote(_escape(value))


def environment_value(value: str) -> str:
    """Return a value for a file of EnvironmentFile=."""
    _refuse_control(value)
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def command_on_one_line(argv: Iterable[str]) -> str:
    """Return a command line for ExecStart= and its like, on one line."""
    return " ".join(map(quoted_argument, argv))


def command_on_lines(argv: Sequence[str], first_argument: str | None = None) -> str:
    """Return a command line for ExecStart=, its lines split as by `split_before_flags`."""
    return " \\\n    ".join(map(command_on_one_line, split_before_flags(argv, first_argument)))


def split_before_flags(argv: Iterable[str], first_argument: str | None = None) -> list[list[str]]:
    """Return the words of a command line, split before each flag and before `first_argument`."""
    groups: list[list[str]] = [[]]
    for item in argv:
        if (is_flag(item) or item == first_argument) and groups[0]:
            groups.append([])
        groups[-1].append(item)
    return groups


def _refuse_control(value: str) -> None:
    if _CONTROL.search(value):
        raise UnitError("a unit cannot hold control characters", found=repr(value)[:60])


def _escape(value: str) -> str:
    _refuse_control(value)
    return value.replace("\\", "\\\\").replace("%", "%%")


def _quote(value: str) -> str:
    if value and set(value) <= _PLAIN:
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + value.replace('"', '\\"') + '"'
