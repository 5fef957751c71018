"""pyinfra as a child process that deploys: its events, its lines in a log, its orderly end."""

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
from lockstep.onhost.core import event_lines

# Codes that move the cursor or colour text. A log is read as plain text.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TICK_S = 0.25
_CHUNK = 65536
#: Seconds that pyinfra has to end after Ctrl-C. It may wait for the step that is under way.
PATIENCE_S = 10.0


class View(Protocol):
    """A display of a run for people."""

    def line(self, text: str) -> None:
        """Take a line that pyinfra printed."""

    def event(self, event: events.Event) -> Any:
        """Take an event; return the answer to an event that waits for one."""

    def tick(self) -> None:
        """Refresh the parts that change with time."""

    def report_interrupt(self) -> None:
        """Show that the run is being ended."""


def follow(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[str], view: View
) -> tuple[int, bool]:
    """Run a deploy to its end; return its exit code, and whether Ctrl-C ended it.

    Args:
        argv: pyinfra's command line.
        folder: The working folder.
        environment: The environment variables.
        log: The log for all output.
        view: The display of the run.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env={**environment, event_lines.READER: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A terminal's Ctrl-C reaches this process, which then ends the child once, and in order.
        process_group=0,
    )
    is_interrupted = False
    with process, _Following(process, log, view) as following:
        while True:
            try:
                following.to_end()
                return process.wait(), is_interrupted
            except KeyboardInterrupt:
                process.send_signal(signal.SIGTERM if is_interrupted else signal.SIGINT)
                is_interrupted = True
                following.give_up_at = time.monotonic() + PATIENCE_S
                view.report_interrupt()
            except BaseException:
                # Without this process nobody would see the progress of the child.
                process.send_signal(signal.SIGINT)
                raise


class _Following:
    """The reader of a child's lines and events."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[str], view: View) -> None:
        assert process.stdin and process.stdout
        self._process, self._log, self._view = process, log, view
        self._answers, self._output = process.stdin, process.stdout
        self._partial_line = b""
        self.give_up_at = math.inf
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def to_end(self) -> None:
        """Read until the child has ended and has no more output."""
        while True:
            if self._selector.select(_TICK_S):
                data = os.read(self._output.fileno(), _CHUNK)
                *whole, self._partial_line = (self._partial_line + data).split(b"\n")
                for line in whole:
                    self._take(line.decode("utf-8", "replace"))
                if not data:
                    return
            elif self._process.poll() is not None:
                # Processes that the child started may hold its output open, and say nothing more.
                return
            if time.monotonic() > self.give_up_at:
                self._process.kill()
            self._view.tick()

    def _take(self, line: str) -> None:
        message = event_lines.read_event(line)
        if event_lines.kind_of(message) == "deploy":
            self._event(events.read(message))
            return
        text = _CODES.sub("", line).rpartition("\r")[2].rstrip()
        log_text = event_lines.text_for_people(text)
        self._log.write(f"{time.strftime('%H:%M:%S')} {log_text}\n" if text else "\n")
        self._log.flush()
        self._view.line(text)

    def _event(self, event: events.Event) -> None:
        answer = self._view.event(event)
        if isinstance(event, events.Ready | events.Asks):
            # The child may have ended meanwhile.
            with contextlib.suppress(BrokenPipeError):
                self._answers.write(json.dumps(answer).encode() + b"\n")
                self._answers.flush()
