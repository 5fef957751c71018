"""pyinfra as a child process that deploys: its events, all its lines in a log, its orderly end."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from lockstep.deploy import events

# Text that moves the cursor or colours; a log is read as it is.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TICK_S = 0.25
_CHUNK = 65536


class View(Protocol):
    """What shows a run to people."""

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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**environment, events.VARIABLE: str(theirs.fileno())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            # A terminal's Ctrl-C comes to us; we end it once, and in order.
            process_group=0,
        )
        theirs.close()
        following = _Following(process, ours, log, view)
        interrupted = False
        while True:
            try:
                following.to_end()
                return process.wait(), interrupted
            except KeyboardInterrupt:
                process.send_signal(signal.SIGTERM if interrupted else signal.SIGINT)
                interrupted = True
                view.interrupted()
            except BaseException:
                # Without us nobody would see how it goes.
                process.send_signal(signal.SIGINT)
                raise


class _Following:
    """Reads a child's output and events as they come."""

    def __init__(
        self, process: subprocess.Popen[bytes], ours: socket.socket, log: IO[str], view: View
    ) -> None:
        assert process.stdout
        self._process, self._ours, self._log, self._view = process, ours, log, view
        self._rest = {"output": b"", "events": b""}
        self._selector = selectors.DefaultSelector()
        self._selector.register(process.stdout, selectors.EVENT_READ, ("output", self._output))
        self._selector.register(ours, selectors.EVENT_READ, ("events", self._event))

    def to_end(self) -> None:
        """Until the child has ended and nothing more comes of it."""
        while self._selector.get_map():
            ready = self._selector.select(_TICK_S)
            for key, _ in ready:
                name, take = key.data
                data = os.read(key.fd, _CHUNK)
                if not data:
                    self._selector.unregister(key.fileobj)
                self._lines(name, data, take)
            # What it started may hold its output open, and has nothing to say.
            if not ready and self._process.poll() is not None:
                return
            self._view.tick()

    def _lines(self, name: str, data: bytes, take: Callable[[str], None]) -> None:
        *whole, self._rest[name] = (self._rest[name] + data).split(b"\n")
        for line in whole:
            take(line.decode("utf-8", "replace"))

    def _output(self, line: str) -> None:
        text = _CODES.sub("", line).rpartition("\r")[2].rstrip()
        self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n" if text else "\n")
        self._log.flush()
        self._view.line(text)

    def _event(self, line: str) -> None:
        event = events.read(line)
        answer = self._view.event(event)
        if isinstance(event, events.Ready | events.Asks):
            self._ours.sendall(json.dumps(answer).encode() + b"\n")
