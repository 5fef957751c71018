"""Ask an engine to end, and kill it where it waits for its clients instead.

usage: end-engine --within SECONDS [--asked] [PID]

PID is the unit's main process; none where that has ended by itself. Runs in ExecStop= of every
model unit. With --asked systemd has asked already: a unit is stopped while it starts.

vLLM ends its engine process at once. Streams that it could not finish by then keep its server
waiting, without bound, until every client has closed its connection: `--shutdown-timeout` bounds
the requests and not the connections (read in 0.26 and 0.32). SGLang answers every request first.
What this process leaves behind is killed by systemd (KillMode=mixed); a container is removed by
`stop-container`.

exit codes: 0 it has ended or was killed, 2 wrong use
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from lockstep.onhost.core import output, program

#: It needs milliseconds.
TRACKER_S = 1.0


def end(pid: int, within_s: float, asked: bool = False) -> bool:
    """Whether process `pid` ended within `within_s` seconds of being asked; else it is killed."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not asked:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        if select.select([process], [], [], within_s)[0]:
            return True
        children = _children(pid)
        signal.pidfd_send_signal(process, signal.SIGKILL)
        _wait(children)
    except (ProcessLookupError, FileNotFoundError):
        # It ended, and systemd has seen it.
        return True
    finally:
        os.close(process)
    return False


def _children(pid: int) -> list[int]:
    """Process descriptors of what a process has started; they close with this program."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    found = []
    for child in listed:
        with suppress(ProcessLookupError):
            found.append(os.pidfd_open(int(child)))
    return found


def _wait(processes: list[int]) -> None:
    """Python's resource tracker takes a dead process's shared memory back, unless it is killed."""
    last = time.monotonic() + TRACKER_S
    while processes and time.monotonic() < last:
        ended = select.select(processes, [], [], last - time.monotonic())[0]
        processes = [each for each in processes if each not in ended]


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("pid", type=int, nargs="?", metavar="PID")
    parser.add_argument("--within", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--asked", action="store_true")
    options = parser.parse_args(argv)
    if options.pid is not None and not end(options.pid, options.within, options.asked):
        output.say(
            f"lockstep end: killed, for it had not ended {options.within:g} s after it was asked: "
            "an engine waits for its clients"
        )
    return 0
