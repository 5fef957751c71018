"""What a deploy says to the program that holds its lock on a host, line by line, while it lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gevent.event import Event
from gevent.queue import Empty, Queue

from lockstep.onhost.records.deploys import BEAT_S


class Beats(list[str]):
    """Standard input that goes on: pyinfra writes what comes out of a list, and then closes it.

    Args:
        document: The first line.

    Attributes:
        begun: Set when the command that reads it was sent.
    """

    def __init__(self, document: str) -> None:
        self.document = document
        self.begun = Event()
        self._lines: Queue[str | None] = Queue()

    def say(self, line: str) -> None:
        """Add a line."""
        self._lines.put(" ".join(line.split()))

    def end(self) -> None:
        """Close it after what was said."""
        self._lines.put(None)

    def __iter__(self) -> Iterator[str]:
        """The document, then each line as it comes, and an empty one where none does."""
        self.begun.set()
        yield self.document
        while True:
            try:
                line = self._lines.get(timeout=BEAT_S)
            except Empty:
                line = ""
            if line is None:
                return
            yield line

    def __bool__(self) -> bool:
        """There is always more."""
        return True

    def __deepcopy__(self, memo: Any) -> Beats:
        """It is one stream, however often its command's arguments are copied."""
        return self
