"""An orderly end for the checks of a unit's start, when systemd stops the unit meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence

_SYSTEMD = 1


def exit_check_on_sigterm(
    program_after_stop: Sequence[str] = (), *, systemd: int = _SYSTEMD
) -> None:
    """Exit with 0 on a SIGTERM from systemd, with 1 on one from anybody else.

    A signal that came earlier, while the unit's command blocked it, counts too. If systemd sent it,
    ``program_after_stop`` starts, and outlives the check.

    If the signal killed the check, a unit that an operator stops would become `failed`. Exit 0 at
    somebody else's signal would count as passed, and the unit as started without a generated token.
    So would 143: SuccessExitStatus= holds for checks as well as for the engine (systemd 257).
    """
    # Only a wait for the signal tells its sender, a handler does not. The mask must be set before
    # another thread exists, or that thread would take the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(
        target=_exit_on_sigterm, args=(program_after_stop, systemd), daemon=True
    ).start()


def _exit_on_sigterm(program_after_stop: Sequence[str], systemd: int) -> None:
    sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
    if sender != systemd:
        os._exit(1)
    if program_after_stop:
        subprocess.Popen(program_after_stop)
    os._exit(0)
