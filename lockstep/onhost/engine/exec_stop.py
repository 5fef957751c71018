"""Ask an engine to end, and kill it if it waits for its clients instead.

usage: end-engine --within SECONDS [--asked] [PID]

PID is the unit's main process; it is missing if that process has ended on its own. Runs in
ExecStop= of every model unit. With --asked, systemd has asked already: a unit is stopped while it
starts.

vLLM ends its engine process at once. If streams are unfinished by then, its server waits without
bound until every client has closed its connection: `--shutdown-timeout` bounds the requests and not
the connections (read in 0.26 and 0.32). SGLang answers every request first. systemd kills processes
that the main process leaves behind (KillMode=mixed), and `stop-container` removes a container.

exit codes: 0 the engine has ended or was killed, 2 wrong use
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import event_lines, program_command_lines

#: Python's resource tracker needs milliseconds.
TRACKER_S = 1.0


def end_process(pid: int, within_s: float, was_asked: bool = False) -> bool:
    """End process `pid`; return False if it outlived `within_s` seconds and had to be killed."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not was_asked:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        if select.select([process], [], [], within_s)[0]:
            return True
        children = _child_descriptors(pid)
        signal.pidfd_send_signal(process, signal.SIGKILL)
        _wait_for_resource_tracker(children)
    except (ProcessLookupError, FileNotFoundError):
        # The process ended, and systemd has reaped it.
        return True
    finally:
        os.close(process)
    return False


def _child_descriptors(pid: int) -> list[int]:
    """Return process descriptors of a process's children; they close with this program."""
    child_ids = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    descriptors = []
    for child in child_ids:
        with suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(int(child)))
    return descriptors


def _wait_for_resource_tracker(processes: list[int]) -> None:
    """Wait for Python's resource tracker, which frees a dead process's shared memory.

    It could not if systemd killed it with the others.
    """
    last = time.monotonic() + TRACKER_S
    while processes and time.monotonic() < last:
        ended_processes = select.select(processes, [], [], last - time.monotonic())[0]
        processes = [process for process in processes if process not in ended_processes]


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("pid", type=int, nargs="?", metavar="PID")
    parser.add_argument("--within", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--asked", action="store_true")
    options = parser.parse_args(argv)
    if options.pid is not None and not end_process(options.pid, options.within, options.asked):
        event_lines.say(
            f"lockstep end: killed, for it had not ended {options.within:g} s after it was asked: "
            "an engine waits for its clients"
        )
    return 0
