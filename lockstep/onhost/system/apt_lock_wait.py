"""Run an apt or dpkg command when the locks are free, and again if another process was faster.

usage: apt-turn [--limit SECONDS] -- ARGV...

Apt and dpkg hold four locks. `dpkg --configure` and `apt-get update` give up at once if another
process has one (DPkg::Lock::Timeout is for the locks of dpkg alone), and in the first hour of a
Spark four services want them: the DGX Dashboard, apt's daily services, the one-shot upgrade of DGX
OS and its OTA checker (facts of a Spark, 2026-11-22). The Dashboard delegates the work to other
processes, which go on after it has died. So this waits until all four are free, with a line a
minute that names the holder. Nobody can hold a lock for `apt-get`, so a command that is refused one
after all has changed nothing and waits again.

exit codes: those of the command; 128 + N when signal N killed it, 75 when the locks were not free
            within --limit, 2 wrong use
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors, event_lines, layout, program_command_lines

LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/apt/lists/lock",
    "var/cache/apt/archives/lock",
)
# Two owners saw a lock held for 21 minutes by aptd, and by PackageKit, after the updater of the
# Dashboard had died (facts of a Spark, 2026-11-25). A longer hold deserves a look.
LIMIT_S = 1800.0
SAY_EVERY_S = 60.0
LOOK_EVERY_S = 1.0
# apt 2.6 to 3.0 and dpkg 1.21 ("by another process") to 1.22 ("by PROGRAM process"), in English.
_REFUSED = re.compile(r"Could not get lock |lock was locked by ")
_SERVANTS = ("aptd", "packagekitd")
# struct flock of 64-bit Linux: type, whence, start, length, process.
_FLOCK = "hhqqi0q"


@dataclass(frozen=True)
class AptLockHolder:
    """The holder of a lock; pid 0 if the kernel does not tell it, unit "" for none."""

    lock: str
    pid: int
    process: str
    unit: str

    def __str__(self) -> str:
        place = f", {self.unit}" if self.unit else ""
        process_text = (
            f"{self.process} (process {self.pid}{place})" if self.pid else "another process"
        )
        return f"{self.lock} is held by {process_text}"

    @property
    def remedy(self) -> str:
        """Advice to the operator: how to inspect the holder, and end one that nobody needs."""
        if self.process in _SERVANTS:
            stop = f"systemctl stop {self.unit}" if self.unit else f"kill {self.pid}"
            return (
                f"it works for another program, such as the DGX Dashboard's updater: `ps -fp "
                f"{self.pid}` shows since when, and where that program has ended, `sudo {stop}` "
                "frees the lock"
            )
        if self.unit.endswith(".service"):
            return f"`journalctl -fu {self.unit}` shows what it does"
        return f"`ps -fp {self.pid}` shows it" if self.pid else "`lslocks` lists what is held"


def apt_lock_holder(paths: layout.Paths) -> AptLockHolder | None:
    """Return the holder of one of the locks, None if all are free; no lock is taken for that."""
    for name in LOCKS:
        path = paths.root / name
        try:
            with path.open("rb") as file:
                lock_question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, *_, pid = struct.unpack(
                    _FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, lock_question)
                )
        except FileNotFoundError:
            continue
        if kind != fcntl.F_UNLCK:
            # The kernel reports -1 for a lock of an open file, which several processes may share.
            return _holder_by_pid(str(path), max(pid, 0), paths.proc)
    return None


def _holder_by_pid(lock: str, pid: int, proc: Path) -> AptLockHolder:
    try:
        process = (proc / str(pid) / "comm").read_text(encoding="utf-8").strip()
        group = (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()[-1]
    except (OSError, IndexError):
        return AptLockHolder(lock, pid, "a process that has ended", "")
    places = group.rpartition(":")[2].split("/")
    unit = next((place for place in places if place.endswith((".service", ".scope"))), "")
    return AptLockHolder(lock, pid, process, unit)


def _wait_for_apt_locks(
    work: Sequence[str], paths: layout.Paths, began: float, limit_s: float
) -> None:
    """Wait until all locks are free; raise Problem with the holder if they are not in time."""
    report_time = float("-inf")
    while lock_holder := apt_lock_holder(paths):
        now = time.monotonic()
        if now - began >= limit_s:
            raise _time_out_problem(work, limit_s, f"{lock_holder}. Remedy: {lock_holder.remedy}")
        if now - report_time >= SAY_EVERY_S:
            report_time = now
            waited_text, limit = event_lines.duration(now - began), event_lines.duration(limit_s)
            event_lines.say(
                f"{_short_command_text(work)}: waited {waited_text} of {limit}, {lock_holder}"
            )
        time.sleep(LOOK_EVERY_S)


def _time_out_problem(work: Sequence[str], limit_s: float, why: str) -> errors.Problem:
    return errors.Problem(
        f"{_short_command_text(work)}: not done after {event_lines.duration(limit_s)}, {why}. "
        "Run the deploy again when the lock is free; do not remove it.",
        errors.EXIT_LOCKED,
    )


def _short_command_text(work: Sequence[str]) -> str:
    """Name a command: "apt-get update", without options; a program of ours "packages prepare"."""
    if program_command_lines.PROGRAMS in work:
        work = work[work.index(program_command_lines.PROGRAMS) + 1 :]
    return " ".join([Path(work[0]).name, *(word for word in work[1:] if word.isalpha())][:2])


def _run_and_detect_refusal(work: Sequence[str]) -> tuple[int, bool]:
    """Run it with its output passed on; return its exit code, and whether a lock refused it."""
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        # Else it would restart programs with an updated library, as a hot engine.
        "NEEDRESTART_SUSPEND": "1",
    }
    is_refused = False
    try:
        running = subprocess.Popen(
            work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
    except OSError as error:
        raise errors.Problem(f"{work[0]}: {error.strerror}", errors.EXIT_USAGE) from error
    with running:
        for line in running.stdout or ():
            is_refused = is_refused or _REFUSED.search(line) is not None
            event_lines.say(line.rstrip("\n"))
    code = running.returncode
    return (128 - code if code < 0 else code), is_refused and code != 0


def main(argv: Sequence[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
    parser.add_argument("work", nargs="+", metavar="ARGV")
    options = parser.parse_args(argv)
    began = time.monotonic()
    while True:
        _wait_for_apt_locks(options.work, paths, began, options.limit)
        code, is_refused = _run_and_detect_refusal(options.work)
        if not is_refused:
            return code
        if time.monotonic() - began >= options.limit:
            raise _time_out_problem(options.work, options.limit, "it was refused a lock each time")
        event_lines.say(f"{_short_command_text(options.work)}: somebody was faster, waiting again")
        time.sleep(LOOK_EVERY_S)
