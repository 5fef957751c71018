"""Turns of hosts within an operation that pyinfra runs on all of them at once.

A host that would lose its hot model waits for every earlier such host of the inventory. If one of
them fails, the hosts after it learn so and stay as they are. A host that loses nothing, but gets
the same change, comes last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

Part = Literal["nothing", "change", "restart"]


class HostTurns:
    """The turns of one step of a run.

    Args:
        names: Hosts that take the step, in the inventory's order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._parts: dict[str, Part] = dict.fromkeys(self._names, "nothing")
        self._turn_events = {name: threading.Event() for name in self._names}
        self._end_events = {name: threading.Event() for name in self._names}
        self._failed_hosts: list[str] = []

    @contextmanager
    def of(self, name: str) -> Iterator[Callable[[Part], str | None]]:
        """Open the turn of one host; the block gets `take` for that host.

        A restart that leaves the block by an exception has failed.
        """
        try:
            yield partial(self.take, name)
        except BaseException:
            if self._parts[name] == "restart":
                self._failed_hosts.append(name)
            raise
        finally:
            self._turn_events[name].set()
            self._end_events[name].set()

    def take(self, name: str, part: Part) -> str | None:
        """Announce the host's part, and wait for its turn.

        Returns:
            The host whose failure holds this one back, or None to continue.
        """
        self._parts[name] = part
        self._turn_events[name].set()
        if part == "nothing":
            return None
        for event in self._turn_events.values():
            event.wait()
        restarting = [
            other_name for other_name in self._names if self._parts[other_name] == "restart"
        ]
        for other_name in restarting[: restarting.index(name)] if part == "restart" else restarting:
            self._end_events[other_name].wait()
        # With --retry the host itself may have failed before.
        return next((other_name for other_name in self._failed_hosts if other_name != name), None)
