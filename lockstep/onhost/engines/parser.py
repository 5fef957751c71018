"""Asking an engine's own parser about a recipe, on the Python that it runs on."""

from __future__ import annotations

import contextlib
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class Unanswered(Exception):
    """The engine cannot be asked here; the text says why."""


@dataclass(frozen=True)
class Reading:
    """A parser's result: option → value, and its value where the command line has none.

    Attributes:
        spellings: Every way to write each option.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    spellings: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, parser: ArgumentParser, parsed: Namespace) -> Reading:
        """The result of a parser; `parsed` may be changed afterwards."""
        options = [each for each in parser._actions if each.option_strings]
        return cls(
            dict(vars(parsed)),
            {each.dest: each.default for each in parser._actions},
            tuple(tuple(each.option_strings) for each in options),
        )

    def differs(self, read: Mapping[str, Any]) -> str | None:
        """The first option that Lockstep read in another way, with both values; None: all agree.

        The value of a key is a secret, and is not shown.

        Args:
            read: Option → number, text or mapping, None where Lockstep read none. Options that the
                parser does not have are its own matter.
        """
        for option, ours in read.items():
            if option not in self.values:
                continue
            theirs = self.values[option]
            if ours is None:
                same = theirs in (self.defaults.get(option), None, -1, "auto")
            elif isinstance(ours, int | float):
                same = isinstance(theirs, int | float) and theirs == ours
            else:
                same = theirs == ours or str(theirs) == ours
            if not same:
                here = "nothing" if ours is None else repr(ours)
                there = "a secret" if option.endswith("_key") else repr(theirs)
                return (
                    f"reads {option} as {there}, where Lockstep reads {here}. Remedy: write the "
                    "flag in full, once"
                )
        return None


@contextlib.contextmanager
def given(environment: Mapping[str, str], prefixes: tuple[str, ...]) -> Iterator[None]:
    """A recipe's own variables of its engine; folders and caches are of where it will run."""
    # Here, because everything that knows an engine reads this module.
    from unittest import mock

    own = {name: value for name, value in environment.items() if name.startswith(prefixes)}
    with mock.patch.dict(os.environ, own):
        yield


def refusal(said: str) -> str:
    """Why argparse refused a command line, in one line.

    Args:
        said: What it wrote to standard error. vLLM's own types add what pydantic says of a value:
            several lines, the last of them an address (ran on 0.32.0).
    """
    lines = [
        re.sub(r" \[type=.*\]$", "", line.strip())
        for line in said.splitlines()
        if line.strip() and not line.lstrip().startswith("For further information visit ")
    ]
    errors = [number for number, line in enumerate(lines) if ": error: " in line]
    return " ".join(lines[errors[-1] if errors else -1 :]) or "no reason given"


def imported(load: Callable[[], Any]) -> Any:
    """What a function imports; an engine that cannot be imported fails in many ways."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise Unanswered(error) from error
