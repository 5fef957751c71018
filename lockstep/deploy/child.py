"""pyinfra as a child process that deploys: its events, all its lines in a log, its orderly end."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, Self

from lockstep.deploy import events

# Text that moves the cursor or colours; a log is read as it is.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TICK_S = 0.25
_CHUNK = 65536
#: pyinfra has this long to end after Ctrl-C, seconds; it may wait for the step that is under way.
PATIENCE_S = 10.0


class View(Protocol):
    """A display of a run for people."""

    def line(self, text: str) -> None:
        """Take a line that pyinfra printed."""

    def event(self, event: events.Event) -> Any:
        """Take an event; the answer, for one that waits for it."""

    def tick(self) -> None:
        """Show what has changed with time."""

    def interrupted(self) -> None:
        """Say that the run is being ended."""


def follow(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[str], view: View
) -> tuple[int, bool]:
    """Run a deploy to its end; its exit code, and whether Ctrl-C ended it.

    Args:
        argv: pyinfra's command line.
        folder: Where it runs.
        environment: Its variables.
        log: Where all that it prints goes.
        view: Who shows it.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env={**environment, events.VARIABLE: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A terminal's Ctrl-C comes to us; we end it once, and in order.
        process_group=0,
    )
    interrupted = False
    with process, _Following(process, log, view) as following:
        while True:
            try:
                following.to_end()
                return process.wait(), interrupted
            except KeyboardInterrupt:
                process.send_signal(signal.SIGTERM if interrupted else signal.SIGINT)
                interrupted = True
                following.give_up_at = time.monotonic() + PATIENCE_S
                view.interrupted()
            except BaseException:
                # Without us nobody would see how it goes.
                process.send_signal(signal.SIGINT)
                raise


class _Following:
    """Reads a child's lines and events as they come."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[str], view: View) -> None:
        assert process.stdin and process.stdout
        self._process, self._log, self._view = process, log, view
        self._answers, self._said = process.stdin, process.stdout
        self._rest = b""
        self.give_up_at = math.inf
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._said, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def to_end(self) -> None:
        """Until the child has ended and nothing more comes of it."""
        while True:
            if self._selector.select(_TICK_S):
                data = os.read(self._said.fileno(), _CHUNK)
                *whole, self._rest = (self._rest + data).split(b"\n")
                for line in whole:
                    self._take(line.decode("utf-8", "replace"))
                if not data:
                    return
            elif self._process.poll() is not None:
                # What it started may hold its output open, and has nothing to say.
                return
            if time.monotonic() > self.give_up_at:
                self._process.kill()
            self._view.tick()

    def _take(self, line: str) -> None:
        if line.startswith(events.MARK):
            self._event(events.read(line))
            return
        text = _CODES.sub("", line).rpartition("\r")[2].rstrip()
        self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n" if text else "\n")
        self._log.flush()
        self._view.line(text)

    def _event(self, event: events.Event) -> None:
        answer = self._view.event(event)
        if isinstance(event, events.Ready | events.Asks):
            # It may have ended meanwhile.
            with contextlib.suppress(BrokenPipeError):
                self._answers.write(json.dumps(answer).encode() + b"\n")
                self._answers.flush()
