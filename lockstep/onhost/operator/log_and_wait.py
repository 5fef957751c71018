"""Output of `switch.sh log` and `switch.sh wait`: a model's journal, and a switch to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from lockstep.onhost.core import (
    clock,
    config,
    errors,
    event_lines,
    layout,
    switch_lock,
    terminal_lines,
)
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import transient_job, units

_MOVING = ("loading", "stopping", "restarting")


def show_switch_until_end(
    job: transient_job.Job, from_end: bool, say: Callable[[str], None] = terminal_lines.say
) -> int:
    """Show a switch until it ends; return its exit code, or 130 if Ctrl-C ended the display."""
    try:
        return transient_job.follow_job(job, from_end, say, heartbeat_s=60, tell_failure=False)
    except KeyboardInterrupt:
        event_lines.say("")
        terminal_lines.say("The switch goes on without you. Watch it with: switch.sh wait")
        return 130


def exec_model_journal(model: config.Model, follow: bool) -> int:
    """Replace this process by journalctl for the model's unit."""
    argv = ["journalctl", "--no-pager", "--no-hostname", "--lines=200", f"--unit={model.unit}"]
    sys.stdout.flush()
    # A pager would offer a shell to everybody with the sudo rule for this command.
    os.execvp(argv[0], [*argv, "--follow"] if follow else argv)


def wait_for_switch_and_start(host: config.HostConfig, paths: layout.Paths) -> int:
    """Wait until no switch and no start is under way; return its code, 1 for a failed start."""
    # Imported here, because a switch starts without it.
    from lockstep.onhost.operator import status

    job = switch_commands.job_to_follow(paths)
    code, started_units = errors.EXIT_DONE, set[str]()
    report_time = 0.0
    while True:
        state = units.units_by_name([switch_commands.UNIT, *(t.unit for t in host.models.values())])
        if transient_job.is_running(state[switch_commands.UNIT]):
            code, started_units = show_switch_until_end(job, from_end=True), set()
            if code in (130, transient_job.EXIT_ALONE):
                return code
            continue
        moving = [t for t in host.models.values() if state[t.unit].state in _MOVING]
        if not moving and switch_lock.holder(paths.switch_lock) is None:
            break
        started_units |= {model.unit for model in moving}
        if clock.now() - report_time >= 15:
            report_time = clock.now()
            for model in moving:
                phase = status.last_phase(state[model.unit])
                terminal_lines.say(f"{model.name} {state[model.unit].state} {phase}".rstrip())
        clock.sleep(0.5)
    hot = [model.name for model in host.models.values() if state[model.unit].state == "hot"]
    terminal_lines.say(f"{', '.join(hot) or 'no model'} hot")
    has_failed = any(state[unit].state == "failed" for unit in started_units)
    return errors.EXIT_FAILED if has_failed else code
