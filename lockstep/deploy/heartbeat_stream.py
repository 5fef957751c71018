"""The lines from a deploy to the program that holds its lock on a host, while the deploy lives."""

from __future__ import annotations

from collections.abc import Iterator

from gevent.event import Event
from gevent.queue import Empty, Queue

from lockstep.onhost.records.deploy_lock import BEAT_S


class Beats(list[str]):
    """An endless standard input: pyinfra writes the items of a list, and then closes the input.

    Args:
        document: The first line.

    Attributes:
        first_beat: Set once the command that reads the stream has been sent.
    """

    def __init__(self, document: str) -> None:
        # pyinfra takes an empty list for no input.
        super().__init__([document])
        self.first_beat = Event()
        self._lines: Queue[str | None] = Queue()

    def say(self, line: str) -> None:
        """Add a line."""
        self._lines.put(" ".join(line.split()))

    def end(self) -> None:
        """Close the stream after the lines added so far."""
        self._lines.put(None)

    def __iter__(self) -> Iterator[str]:
        """Yield the document, then each line as it comes, and an empty one per silent beat."""
        self.first_beat.set()
        yield from super().__iter__()
        while True:
            try:
                line = self._lines.get(timeout=BEAT_S)
            except Empty:
                line = ""
            if line is None:
                return
            yield line
