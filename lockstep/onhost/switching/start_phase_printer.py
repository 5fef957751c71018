"""A reader of a unit's journal while it starts, which prints the phases of the engine's log."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from lockstep.onhost.core import clock, errors, runner
from lockstep.onhost.engine import log_phases

# One line per few seconds: an engine's log must not fill a phone's screen.
_PHASE_EVERY_S = 3.0


class StartPhasePrinter:
    """A printer of the phases of a unit's start, one line per few seconds of its journal."""

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
        last_phase, spoke = "", 0.0
        for line in self._process.stdout:
            text = log_phases.announced_phase(line)
            is_due = clock.now() - spoke >= _PHASE_EVERY_S or log_phases.own_line(line)
            if text and text != last_phase and is_due:
                last_phase, spoke = text, clock.now()
                self._say(text)
