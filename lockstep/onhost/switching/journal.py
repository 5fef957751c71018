"""Follows a unit's journal while it starts, and prints the phases of the engine's log."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from lockstep.onhost.core import clock, errors, runner
from lockstep.onhost.engine import log_phases

# One line per few seconds: an engine's log must not push the phone's screen away.
_PHASE_EVERY_S = 3.0


class JournalTail:
    """Says the phases of a unit's start as its journal grows, one line per few seconds."""

    def __init__(self, unit: str, since: float, say: Callable[[str], None]) -> None:
        self._argv = ["journalctl", "--follow", "--quiet", "--output=cat", "--lines=all"]
        self._argv += [f"--since=@{int(since)}", f"--unit={unit}"]
        self._say = say
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> None:
        with suppress(errors.Problem, OSError):
            self._process = runner.start(self._argv, stderr=subprocess.DEVNULL)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._thread.join(5)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        said, spoke = "", 0.0
        for line in self._process.stdout:
            text = log_phases.phase(line)
            own = "lockstep " in line
            if text and text != said and (own or clock.now() - spoke >= _PHASE_EVERY_S):
                said, spoke = text, clock.now()
                self._say(text)
