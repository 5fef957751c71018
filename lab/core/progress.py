"""Shows that long steps are alive: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

Report = Callable[[str], None]
#: Without a terminal, a step that goes on prints a line this often, in seconds.
PLAIN_PERIOD = 10.0
WIDTH = 80


class Steps:
    """The steps of one command; each may run in a thread of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._live = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.fields[title]:<9}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=console,
        )

    @contextlib.contextmanager
    def live_display(self) -> Iterator[None]:
        """Draw the live table, on a terminal, while the block runs."""
        with self._live if self._console.is_terminal else contextlib.nullcontext():
            yield

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Report]:
        """Begin a step; the block gets a function that reports the progress."""
        start_time = time.monotonic()
        task = self._live.add_task(title, total=1, title=title, said="")
        last = [0.0]

        def report(message: str) -> None:
            self._live.update(task, said=fit(message, WIDTH - 24))
            if not self._console.is_terminal and time.monotonic() - last[0] > PLAIN_PERIOD:
                last[0] = time.monotonic()
                self._plain(title, message)

        yield report
        seconds = f"{time.monotonic() - start_time:.1f} s"
        self._live.update(task, completed=1, said=f"done in {seconds}")
        if not self._console.is_terminal:
            self._plain(title, f"done in {seconds}")

    def _plain(self, title: str, message: str) -> None:
        with self._lock:
            self._console.print(Text(fit(f"{title}: {message}", WIDTH)), soft_wrap=True)


def fit(text: str, width: int) -> str:
    """The first line of ``text``, shortened to ``width`` columns."""
    line = (text.splitlines() or [""])[0]
    return line if len(line) <= width else line[: width - 1] + "…"
