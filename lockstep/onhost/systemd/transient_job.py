"""Long work as a transient systemd unit: it outlives the terminal that asked for it.

A job runs at most once at a time on a host. Its state is the unit's state (`RemainAfterExit`
keeps a finished one visible until the next run or boot), its output a log file that any number of
followers may read. Losing a follower never touches the job.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import clock, errors, event_lines, file_lock, layout, runner
from lockstep.onhost.systemd import units

EXIT_TIMEOUT = 124  # as timeout(1) has it
EXIT_ALONE = 141  # as if killed by SIGPIPE: the connection is gone, the job goes on
# As if ended by SIGTERM: systemd no longer knows the unit, or other work has its name.
EXIT_GONE = 143
#: Longest time for which a unit's state is believed, seconds.
_STATE_S = 5.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")


class OtherJobRunning(Exception):
    """Other work is running under this job's name."""


@dataclass(frozen=True)
class Job:
    """A command to run.

    `env_file` is read by systemd itself: its values appear on no command line.
    """

    name: str
    argv: tuple[str, ...]
    user: str | None = None
    env_file: str | None = None
    properties: tuple[str, ...] = ()
    unit_prefix: str = "lockstep-job-"
    log: Path = Path("/dev/null")
    # A build's output may name private sources.
    log_mode: int = 0o640

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise errors.Problem(
                f"job name {self.name!r}: expected a-z, 0-9, - and _, at most 80",
                errors.EXIT_USAGE,
            )

    @property
    def unit(self) -> str:
        """Name of its transient unit."""
        return f"{self.unit_prefix}{self.name}.service"

    @property
    def fingerprint(self) -> str:
        """Identity of this work among others under the same name."""
        parts = (*self.argv, "", self.user or "", self.env_file or "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """Description= of the unit; carries the fingerprint."""
        return f"lockstep job {self.name} {self.fingerprint}"


def systemd_run_command(job: Job) -> list[str]:
    """Return the systemd-run call that starts `job`, as an argument list."""
    # `exec` makes systemd-run fail at once if the program cannot be executed. Killing a build is
    # better than losing sshd: it is offered to the out-of-memory killer first.
    properties = [
        "Type=exec",
        "RemainAfterExit=yes",
        "OOMScoreAdjust=500",
        # `truncate:` would empty the log again for each command of the unit.
        f"StandardOutput=append:{job.log}",
        *job.properties,
    ]
    if job.env_file:
        properties.append(f"EnvironmentFile={job.env_file}")
    if job.user:
        # torch and uv make folders and locks with well-known names there: another account could
        # make them first, and so delay a build, or plant what it loads.
        properties.append("PrivateTmp=yes")
    argv = ["systemd-run", "--quiet", "--no-ask-password", f"--unit={job.unit}"]
    argv += [f"--description={job.description}"]
    argv += [f"--setenv={event_lines.READER}=1"]
    argv += [f"--property={value}" for value in properties]
    argv += [f"--uid={job.user}"] if job.user else []
    return [*argv, "--", *job.argv]


def is_running(unit: units.Unit) -> bool:
    """Tell whether the job's processes are at work (a finished one stays `active (exited)`)."""
    return unit.up and unit.sub != "exited"


def running_jobs() -> list[str]:
    """Return the units of a deploy's jobs that are at work."""
    jobs = units.loaded_units("lockstep-job-*.service")
    return [name for name, unit in jobs.items() if is_running(unit)]


def clear_failed_jobs() -> None:
    """Clear the failures of a deploy's jobs: after a good end, unfinished work is obsolete."""
    units.try_to_control("reset-failed", "lockstep-job-*")


def start_job(
    job: Job, paths: layout.Paths, say: Callable[[str], None] = event_lines.say, wait: bool = True
) -> bool:
    """Start `job` unless it is running already: True when started, False when attached to.

    Other work that runs under the same name is waited for first.

    Raises:
        OtherJobRunning: Other work runs under that name, and `wait` is false.
        errors.Problem: systemd refuses.
    """
    has_reported = False
    while True:
        with file_lock.hold_lock(paths.run / "jobs" / f"{job.name}.lock"):
            unit = units.units_by_name([job.unit])[job.unit]
            if not is_running(unit):
                _clear_ended_unit(job, unit, say)
                _launch_unit(job)
                return True
        if unit.description == job.description:
            return False
        if not wait:
            raise OtherJobRunning(f"{job.unit} is doing other work")
        if not has_reported:
            say(f"job {job.name}: other work under this name is running, waiting for its end")
            has_reported = True
        clock.sleep(1)


def _clear_ended_unit(job: Job, unit: units.Unit, say: Callable[[str], None]) -> None:
    if unit.active == "failed":
        if unit.description == job.description:
            say(f"job {job.name}: the last run failed ({unit.failure}), starting again; it said:")
            for line in _last_words(job.log):
                say(f"  {event_lines.read_event(line)}")
        units.try_to_control("reset-failed", unit.name)
    elif unit.up:
        units.try_to_control("stop", unit.name)


def _last_words(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
    except OSError:
        return []


def _launch_unit(job: Job) -> None:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    job.log.touch(mode=job.log_mode)
    os.truncate(job.log, 0)
    if job.env_file and not Path(job.env_file).is_file():
        raise errors.Problem(f"job {job.name}: environment file {job.env_file} does not exist")
    # systemd forgets a finished transient unit a moment after it was told to.
    for _ in range(20):
        result = runner.run(systemd_run_command(job), timeout=90)
        if "already loaded" not in result.stderr:
            break
        clock.sleep(0.25)
    if result.returncode != 0:
        reason = (result.stderr or result.stdout).strip()
        raise errors.Problem(f"job {job.name}: systemd-run failed: {reason}")


def _sleep_until_process_end(pid: int, seconds: float) -> bool:
    """Sleep so many seconds, or until process `pid` ends; tell whether it is alive afterwards.

    Without a process the job is just beginning or ending, which takes systemd a moment.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        clock.sleep(seconds if pid else 0.05)
        return False
    try:
        return not select.select([handle], [], [], seconds)[0]
    finally:
        os.close(handle)


def follow_job(
    job: Job,
    from_end: bool,
    say: Callable[[str], None] = event_lines.say,
    heartbeat_s: float = 15.0,
    tell_failure: bool = True,
) -> int:
    """Print a job's log as it grows, and return its exit status, 128 + signal, or 124.

    143 is also returned for a job whose unit is gone or has become that of other work, because its
    outcome is then unknown, and 141 where the reader of these lines is gone.

    `from_end` starts with the last ten lines, for a job that somebody else started. After
    `heartbeat_s` seconds of silence, a line says that the job still runs.
    """
    start_time = spoke = clock.now()
    with job.log.open("rb") as log:
        lines, partial_line = _split_lines(log.read()) if from_end else ([], "")
        for line in lines[-10:]:
            say(event_lines.read_event(line))
        is_alive, read_at = False, start_time
        while True:
            # State first, log second, so that no output before the end is missed. While its process
            # is alive, a unit's state is what it was, but for one that hangs in a driver: systemd
            # gives it up.
            if not is_alive or clock.now() - read_at >= _STATE_S:
                unit, read_at = units.units_by_name([job.unit])[job.unit], clock.now()
            # Replaced by other work, whose lines are in the same log.
            is_replaced = unit.is_installed and job.argv and unit.description != job.description
            lines, partial_line = (
                ([], "") if is_replaced else _split_lines(log.read(), partial_line)
            )
            for line in lines:
                say(event_lines.read_event(line))
            if is_replaced or not unit.is_installed:
                if tell_failure:
                    say(f"job {job.name}: somebody stopped it")
                return EXIT_GONE
            if not is_running(unit):
                if partial_line.strip():
                    say(event_lines.read_event(partial_line))
                return _exit_status(job, unit, say, tell_failure)
            now = clock.now()
            if lines:
                spoke = now
            elif now - spoke >= heartbeat_s:
                spoke = now
                say(f"job {job.name}: still running, {event_lines.duration(now - start_time)}")
            if event_lines.has_lost_reader():
                return EXIT_ALONE
            seconds = min(1.0, 0.05 + (now - start_time) / 10)
            is_alive = _sleep_until_process_end(unit.main_pid, seconds)


def _split_lines(data: bytes, partial_line: str = "") -> tuple[list[str], str]:
    """Split into whole lines and the rest; a progress bar's redrawing counts as lines too."""
    *whole, partial_line = (
        (partial_line + data.decode("utf-8", "replace")).replace("\r", "\n").split("\n")
    )
    return [line for line in whole if line.strip()], partial_line


def _exit_status(job: Job, unit: units.Unit, say: Callable[[str], None], tell_failure: bool) -> int:
    if unit.active != "failed":
        return 0
    if tell_failure:
        for line in _journal_of_refused_unit(job):
            say(line)
        say(f"job {job.name}: failed ({unit.failure}); log: {job.log}")
    if unit.result == "timeout":
        return EXIT_TIMEOUT
    if unit.main_code in ("2", "3"):  # CLD_KILLED, CLD_DUMPED
        return 128 + unit.main_status
    return unit.main_status or errors.EXIT_FAILED


def _journal_of_refused_unit(job: Job) -> list[str]:
    """Return why systemd refused a unit: systemctl itself only tells where that is to be read."""
    if job.argv[:1] != ("systemctl",):
        return []
    return [f"journal: {line}" for line in units.last_lines(job.argv[-1], 5)]
