"""Lets hosts take turns within an operation that pyinfra runs on all of them at once.

A host that would lose its hot model waits for every host before it in the inventory that would too.
When one of them fails, the hosts after it are told so and stay as they are; a host that loses
nothing, but would be given the same change, comes last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

Part = Literal["nothing", "change", "restart"]


class Turns:
    """The turns of one step of a run.

    Args:
        names: Hosts that take it, in the inventory's order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._parts: dict[str, Part] = dict.fromkeys(self._names, "nothing")
        self._told = {name: threading.Event() for name in self._names}
        self._ended = {name: threading.Event() for name in self._names}
        self._failed: list[str] = []

    @contextmanager
    def of(self, name: str) -> Iterator[Callable[[Part], str | None]]:
        """The turn of one host, which it takes with `take` of its name.

        A restart that leaves the block by an exception has failed.
        """
        try:
            yield partial(self.take, name)
        except BaseException:
            if self._parts[name] == "restart":
                self._failed.append(name)
            raise
        finally:
            self._told[name].set()
            self._ended[name].set()

    def take(self, name: str, part: Part) -> str | None:
        """Say what is to be done to a host, and wait for its turn.

        Returns:
            The host whose failure holds this one back, or None: go on.
        """
        self._parts[name] = part
        self._told[name].set()
        if part == "nothing":
            return None
        for told in self._told.values():
            told.wait()
        restarting = [other for other in self._names if self._parts[other] == "restart"]
        for other in restarting[: restarting.index(name)] if part == "restart" else restarting:
            self._ended[other].wait()
        # With --retry the host itself may have failed before.
        return next((other for other in self._failed if other != name), None)
