"""Asking an engine's own parser about a recipe, on the Python that it runs on."""

from __future__ import annotations

import contextlib
import os
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


def imported(load: Callable[[], Any]) -> Any:
    """What a function imports; an engine that cannot be imported fails in many ways."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise Unanswered(error) from error
