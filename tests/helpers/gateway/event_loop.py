"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")


def in_event_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own, for at most three minutes."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named_arguments: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named_arguments), 180))

    return run
