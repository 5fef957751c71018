"""Choose the one model that is hot here.

switch.sh MODEL [--wait]  make it hot
switch.sh MODEL --instead cancel a
  switch under way, then make it hot
switch.sh MODEL --dry     only check
switch.sh none [--wait]    stop all
switch.sh cancel           end the
  switch under way; what was hot
  before comes back
switch.sh status [--json]  the hot model
switch.sh status --follow  the facts of
  its page, a line of JSON each second
switch.sh log MODEL [-f]  its journal
switch.sh wait             until no
  switch and no start is under way

--wait: wait for another switch first.
If MODEL does not start, its fallback
starts, else the model before it. Ctrl-C
or a lost connection ends the display,
not the switch.

Exit codes:
 0 done
 1 failed or refused: the model before
   is hot
 2 wrong use
 3 failed: its fallback is hot
 4 failed: no model is hot. A cluster:
   some members did not get their model
   back; the last line names them
 5 cancelled: all is as before
75 another switch is under way
77 not permitted (no sudo rule)
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from lockstep.onhost.core import (
    clock,
    config,
    errors,
    event_lines,
    layout,
    runner,
    switch_lock,
    terminal_lines,
)
from lockstep.onhost.operator import log_and_wait
from lockstep.onhost.switching import hot_change_under_way, switch_commands
from lockstep.onhost.systemd import transient_job, units

_FLAGS = {"status": ("--json", "--follow"), "log": ("-f",), "wait": (), "cancel": ()}


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring.

    A switch passes here twice before its worker begins, as the operator and as root, and each time
    the operator waits. So imports that only the worker, the status or a rehearsal needs come later.
    """
    paths = paths or layout.Paths()
    if not argv or {"-h", "--help"} & set(argv):
        print((__doc__ or "").strip())
        return errors.EXIT_DONE if argv else errors.EXIT_USAGE
    if argv[0] in switch_commands.WORK:
        from lockstep.onhost.operator import switch_worker

        return switch_worker.main(argv, paths)
    name, *words = argv
    host = config.load_host(paths.models)
    subject = words.pop(0) if name == "log" and words and not words[0].startswith("-") else None
    _check_words(host, name, subject, words)
    if name == "wait":
        return log_and_wait.wait_for_switch_and_start(host, paths)
    if name in ("status", "log"):
        # Root sees containers and journals too; without a sudo rule, show what everybody may see.
        if not units.is_root() and _may_become_root(argv):
            _become_root(argv)
        if name == "log":
            return log_and_wait.exec_model_journal(host.model(str(subject)), follow="-f" in words)
        if "--follow" in words:
            return _print_facts_each_second(host, paths)
        return _print_status(host, paths, as_json="--json" in words)
    _ensure_root([name, *words])
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    if name == "cancel":
        return cancel_switch(user, paths)
    if "--dry" in words:
        from lockstep.onhost.operator import switch_worker

        return switch_worker.rehearse_switch(name, user, host, paths)
    if "--instead" in words:
        _request_cancellation(user, paths, restore=False)
    return run_switch(name, user, paths, wait=not {"--wait", "--instead"}.isdisjoint(words))


def _check_words(host: config.HostConfig, name: str, subject: str | None, flags: list[str]) -> None:
    model = subject if name == "log" else name
    words = [*host.models, "none", *_FLAGS]
    if name == "log" and subject is None:
        raise errors.Problem(f"log of what? Known: {', '.join(host.models)}", errors.EXIT_USAGE)
    if model not in (host.models if name == "log" else words):
        known_names = ", ".join(host.models if name == "log" else words)
        raise errors.Problem(f"unknown model {model!r}. Known: {known_names}", errors.EXIT_USAGE)
    allowed_flags = _FLAGS.get(name, ("--wait", "--instead", "--dry"))
    if wrong := [flag for flag in flags if flag not in allowed_flags] or flags[1:]:
        message = f"{name} does not take {' '.join(wrong)}. See switch.sh --help"
        raise errors.Problem(message, errors.EXIT_USAGE)


def _print_status(host: config.HostConfig, paths: layout.Paths, as_json: bool) -> int:
    from lockstep.onhost.operator import status

    host_status = status.query_status(host, paths)
    if as_json:
        print(json.dumps(status.status_document(host_status), indent=2))
    else:
        status.print_status(host_status)
    return errors.EXIT_DONE


def _print_facts_each_second(host: config.HostConfig, paths: layout.Paths) -> int:
    """Print the facts as a line of JSON each second, as long as somebody reads."""
    from lockstep.onhost.operator import live_state

    now = live_state.Facts(host, paths).facts_now
    while not event_lines.has_lost_reader():
        event_lines.say(json.dumps(now()))
        clock.sleep(live_state.FRESH_S)
    return errors.EXIT_DONE


def _ensure_root(argv: list[str]) -> None:
    """Return as root, become root, or refuse."""
    if units.is_root():
        return
    if not _may_become_root(argv):
        message = f"{getpass.getuser()} may not switch models on this host: no sudo rule"
        remedy = "Remedy: add the user to the operators in the inventory and deploy"
        raise errors.Problem(f"{message}. {remedy}", errors.EXIT_NOT_PERMITTED)
    _become_root(argv)


def _become_root(argv: list[str]) -> None:
    """Replace this process by sudo with exactly the arguments that the sudoers rule names."""
    command = ["sudo", "-n", "--", *switch_commands.switch_program_command(), *argv]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _may_become_root(argv: list[str]) -> bool:
    with suppress(errors.Problem):
        words = ["sudo", "-n", "-l", "--", *switch_commands.switch_program_command(), *argv]
        return runner.run(words, timeout=20).returncode == 0
    return False


def run_switch(
    name: str,
    user: str,
    paths: layout.Paths,
    wait: bool,
    say: Callable[[str], None] = terminal_lines.say,
) -> int:
    """Run the switch in systemd and show its output until it ends; return its exit code.

    Raise Problem (75) if another switch is under way, unless `wait` is set.
    """
    job = switch_commands.switch_job_of(name, user, paths)
    since = time.time()
    _start_switch_job(job, paths, wait)
    code = log_and_wait.show_switch_until_end(job, from_end=False, say=say)
    if code != transient_job.EXIT_GONE:
        return code
    return _recorded_exit_code(paths, since, say, (user, name))


def cancel_switch(
    user: str, paths: layout.Paths, say: Callable[[str], None] = terminal_lines.say
) -> int:
    """End the switch under way, and show it until the previous model is hot again.

    Returns:
        0 if that has happened, else the exit code of the switch.

    Raises:
        errors.Problem: No switch is under way here.
    """
    since = time.time()
    job = _request_cancellation(user, paths, restore=True)
    if job is None:
        raise errors.Problem(_nothing_to_cancel_problem(paths))
    code = log_and_wait.show_switch_until_end(job, from_end=True, say=say)
    if code == transient_job.EXIT_GONE:
        code = _recorded_exit_code(paths, since, say)
    if code == errors.EXIT_DONE:
        raise errors.Problem("the switch had ended well before it could be cancelled")
    return errors.EXIT_DONE if code == errors.EXIT_CANCELLED else code


def _recorded_exit_code(
    paths: layout.Paths,
    since: float,
    say: Callable[[str], None],
    meaning: tuple[str, str] | None = None,
) -> int:
    """Return a switch's exit code from its record, after the next switch has reused its unit.

    `meaning` is its person and model.
    """
    from lockstep.onhost.records import switch_history

    ends = [
        kept_switch
        for kept_switch in switch_history.load(paths)
        if kept_switch.at >= since and meaning in (None, (kept_switch.person, kept_switch.model))
    ]
    if not ends:
        say("somebody stopped the switch")
        return transient_job.EXIT_GONE
    # The first since then: later ones belong to the next switch.
    say(ends[-1].words)
    return ends[-1].code


def _request_cancellation(
    user: str, paths: layout.Paths, restore: bool
) -> transient_job.Job | None:
    """Ask the switch under way to end, and return its job; None if there is none."""
    job = switch_commands.job_to_follow(paths)
    while transient_job.is_running(units.units_by_name([job.unit])[job.unit]):
        # A request made before the switch begins would be taken for one of an earlier switch.
        if switch_lock.holder(paths.switch_lock):
            hot_change_under_way.request_cancellation(paths, user, restore=restore)
            return job
        clock.sleep(0.1)
    return None


def _nothing_to_cancel_problem(paths: layout.Paths) -> str:
    holder = switch_lock.holder(paths.switch_lock)
    if holder is None:
        return "no switch is under way. Remedy: switch.sh none stops the model"
    return f"{holder}, and that is not to be cancelled from here. Remedy: switch.sh wait"


def _start_switch_job(job: transient_job.Job, paths: layout.Paths, wait: bool) -> None:
    path = paths.switch_lock
    report_time = -30.0
    while True:
        holder = switch_lock.holder(path)
        try:
            if holder is None:
                transient_job.start_job(job, paths, say=lambda _: None, wait=False)
                return
        except transient_job.OtherJobRunning:
            holder = switch_lock.holder(path)
        if not wait:
            raise switch_lock.SwitchUnderWay(holder)
        if event_lines.has_lost_reader():
            # The person who asked has gone, and must not be surprised by a later switch.
            raise errors.Problem("nobody waits for this switch any more: it was not begun")
        if clock.now() - report_time >= 15:
            report_time = clock.now()
            terminal_lines.say(f"waiting: {holder or 'somebody else is switching'}")
        clock.sleep(0.5)
