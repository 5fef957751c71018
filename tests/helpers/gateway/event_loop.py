"""Tests that are coroutines."""

import asyncio
import functools
from typing import Any


def in_event_loop(test: Any) -> Any:
    """Run a test in an event loop of its own, for at most three minutes."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 180))

    return run
