"""Questions to an engine's own parser about a recipe, on the Python that it runs on."""

from __future__ import annotations

import contextlib
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class EngineUnavailable(Exception):
    """The error that the engine cannot be asked here; its text says why."""


@dataclass(frozen=True)
class ParsedCommand:
    """A parser's result: option → value, and option → default.

    Attributes:
        spellings: Every way to write each option.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    spellings: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def from_parser(cls, parser: ArgumentParser, namespace: Namespace) -> ParsedCommand:
        """Make the result of a parser; `parsed` may be changed afterwards."""
        options = [action for action in parser._actions if action.option_strings]
        return cls(
            dict(vars(namespace)),
            {action.dest: action.default for action in parser._actions},
            tuple(tuple(action.option_strings) for action in options),
        )

    def misread_option(self, read: Mapping[str, Any]) -> str | None:
        """Return the first option that Lockstep read differently, with both values, or None.

        The value of a key is a secret, and is not shown.

        Args:
            read: Option → number, text or mapping; None if Lockstep read none. Options that the
                parser does not have are ignored.
        """
        for option, own_value in read.items():
            if option not in self.values:
                continue
            parser_value = self.values[option]
            if own_value is None:
                is_same = parser_value in (self.defaults.get(option), None, -1, "auto")
            elif isinstance(own_value, int | float):
                is_same = isinstance(parser_value, int | float) and parser_value == own_value
            else:
                is_same = parser_value == own_value or str(parser_value) == own_value
            if not is_same:
                own_text = "nothing" if own_value is None else repr(own_value)
                parser_text = "a secret" if option.endswith("_key") else repr(parser_value)
                return (
                    f"reads {option} as {parser_text}, where Lockstep reads {own_text}. Remedy: "
                    "write the "
                    "flag in full, once"
                )
        return None


@contextlib.contextmanager
def recipe_environment(environment: Mapping[str, str], prefixes: tuple[str, ...]) -> Iterator[None]:
    """Set a recipe's own variables of its engine in the block.

    Its other variables, for folders and caches, belong to the place where it will run.
    """
    # Imported here, because everything that knows an engine reads this module.
    from unittest import mock

    own = {name: value for name, value in environment.items() if name.startswith(prefixes)}
    with mock.patch.dict(os.environ, own):
        yield


def refusal(error_text: str) -> str:
    """Return argparse's reason to refuse a command line, in one line.

    Args:
        error_text: Its standard error. vLLM's own types add pydantic's message about a value:
            several lines, the last of them an address (ran on 0.32.0).
    """
    lines = [
        re.sub(r" \[type=.*\]$", "", line.strip())
        for line in error_text.splitlines()
        if line.strip() and not line.lstrip().startswith("For further information visit ")
    ]
    errors = [number for number, line in enumerate(lines) if ": error: " in line]
    return " ".join(lines[errors[-1] if errors else -1 :]) or "no reason given"


def import_or_raise_unavailable(load: Callable[[], Any]) -> Any:
    """Return what a function imports; raise EngineUnavailable for any failure of that."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise EngineUnavailable(error) from error
