"""Asking an engine's own parser about a recipe, on the Python that it runs on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Unanswered(Exception):
    """The engine cannot be asked here; the text says why."""


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
