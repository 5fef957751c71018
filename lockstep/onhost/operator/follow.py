"""What `switch.sh log` and `switch.sh wait` show: a target's journal, and a switch to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from lockstep.onhost.core import clock, config, errors, layout, output, switch_lock, terminal
from lockstep.onhost.switching import switch_job
from lockstep.onhost.systemd import transient, units

_MOVING = ("loading", "stopping", "restarting")


def follow(job: transient.Job, from_end: bool, say: Callable[[str], None] = terminal.say) -> int:
    """Show a switch until it ends; its exit code, or 130 when Ctrl-C ended the watching."""
    try:
        return transient.follow(job, from_end, say, heartbeat_s=60, tell_failure=False)
    except KeyboardInterrupt:
        output.say("")
        terminal.say("The switch goes on without you. Watch it with: switch.sh wait")
        return 130


def log(target: config.Target, follow: bool) -> int:
    """Replace this process by journalctl for the target's unit."""
    argv = ["journalctl", "--no-pager", "--no-hostname", "--lines=200", f"--unit={target.unit}"]
    sys.stdout.flush()
    # Never with a pager: it would offer a shell to whoever has the rule for this command.
    os.execvp(argv[0], [*argv, "--follow"] if follow else argv)


def wait(host: config.Host, paths: layout.Paths) -> int:
    """Return when no switch and no start is under way: the switch's code, 1 for a failed start."""
    from lockstep.onhost.operator import status  # A switch starts without it.

    job = switch_job.job_under_way(paths)
    code, started = errors.EXIT_DONE, set[str]()
    told = 0.0
    while True:
        state = units.show([switch_job.UNIT, *(t.unit for t in host.targets.values())])
        if transient.running(state[switch_job.UNIT]):
            code, started = follow(job, from_end=True), set()
            if code in (130, transient.EXIT_ALONE):
                return code
            continue
        moving = [t for t in host.targets.values() if state[t.unit].state in _MOVING]
        if not moving and switch_lock.holder(paths.switch_lock) is None:
            break
        started |= {target.unit for target in moving}
        if clock.now() - told >= 15:
            told = clock.now()
            for target in moving:
                phase = status.last_phase(state[target.unit])
                terminal.say(f"{target.name} {state[target.unit].state} {phase}".rstrip())
        clock.sleep(0.5)
    hot = [target.name for target in host.targets.values() if state[target.unit].state == "hot"]
    terminal.say(f"{', '.join(hot) or 'no model'} hot")
    failed = any(state[unit].state == "failed" for unit in started)
    return errors.EXIT_FAILED if failed else code
