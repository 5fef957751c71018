"""An orderly end for the checks of a unit's start, when systemd stops the unit meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence

_SYSTEMD = 1
_last: list[Sequence[str]] = []


def end_when_stopped(systemd: int = _SYSTEMD) -> None:
    """Exit with 0 on a SIGTERM of systemd's, with 1 on anybody else's.

    Killed by the signal, the check would make a unit that an operator stops `failed`. Exit 0 at
    somebody else's signal would count as passed, and a unit as started that generated nothing. So
    would 143: SuccessExitStatus= holds for checks as well as for the engine (systemd 257).
    """
    # Who sent a signal is told to those who wait for it, not to a handler. The mask must be set
    # before another thread exists, or that thread would take the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_wait, args=(systemd,), daemon=True).start()


def leave_behind(argv: Sequence[str]) -> None:
    """Start one more program when systemd stops the unit; it outlives this one."""
    _last.append(argv)


def _wait(systemd: int) -> None:
    sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
    if sender != systemd:
        os._exit(1)
    for argv in _last:
        subprocess.Popen(argv)
    os._exit(0)
