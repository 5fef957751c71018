"""A switch as a systemd job: its start, its completion after a kill, its progress file."""

from __future__ import annotations

import shlex
from pathlib import Path

from lockstep.onhost.core import layout
from lockstep.onhost.core.program_command_lines import command
from lockstep.onhost.systemd import transient_job

WORKER, FALL_BACK, FINISH = "--worker", "--fall-back", "--finish"
#: First words of the job's own commands, which operators do not use.
WORK = (WORKER, FALL_BACK, FINISH)
#: The unit of `switch_job_of`.
UNIT = "lockstep-switch.service"


def switch_program_command() -> list[str]:
    """Return the command line of switch.sh's own program."""
    return [*command("switch")]


def log_file(paths: layout.Paths) -> Path:
    """Return the path of the last switch's output since boot.

    It is in memory, so that a full disk silences no switch.
    """
    return paths.run / "switch.log"


def switch_job_of(name: str, user: str, paths: layout.Paths) -> transient_job.Job:
    """Return the job of the switch to `name` that `user` asks for."""
    return _job_running_switch_sh(paths, WORKER, name, user)


def job_to_follow(paths: layout.Paths) -> transient_job.Job:
    """Return the job of the switch under way, for reading only."""
    return transient_job.Job("switch", (), unit_prefix="lockstep-", log=log_file(paths))


def replacement_job(name: str, paths: layout.Paths) -> transient_job.Job:
    """Return the job that starts the replacement of `name`, which the memory watch has ended."""
    return _job_running_switch_sh(paths, FALL_BACK, name)


def _job_running_switch_sh(paths: layout.Paths, *words: str) -> transient_job.Job:
    return transient_job.Job(
        name="switch",
        unit_prefix="lockstep-",
        argv=(*switch_program_command(), *words),
        log=log_file(paths),
        # status shows its last line to everybody.
        log_mode=0o644,
        properties=(
            # A switch must survive the memory pressure that it may be the remedy for.
            "OOMScoreAdjust=-900",
            f"ExecStopPost={_finish_command(paths)}",
            # Finishing a switch includes a start, which its own unit limits.
            "TimeoutStopSec=7200",
        ),
    )


def _finish_command(paths: layout.Paths) -> str:
    """Return the command that finishes a switch which was cut off, and costs nothing otherwise."""
    # In `hot_change.HotChange` as JSON, `"switch": {` is work on record. A pattern without quotes
    # passes systemd unchanged.
    script = '! grep -qs switch...{ "$0" || exec "$@"'
    words = [str(paths.hot_change), *switch_program_command(), FINISH]
    # systemd turns two `$` into one.
    return shlex.join(["/bin/sh", "-c", script, *words]).replace("$", "$$")
