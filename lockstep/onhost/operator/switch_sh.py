"""Choose the one model that is hot here.

switch.sh TARGET [--wait]  make it hot
switch.sh TARGET --instead cancel a
  switch under way, then make it hot
switch.sh TARGET --dry     only check
switch.sh none [--wait]    stop all
switch.sh cancel           end the
  switch under way; what was hot
  before comes back
switch.sh status [--json]  the hot model
switch.sh status --follow  the facts of
  its page, a line of JSON each second
switch.sh log TARGET [-f]  its journal
switch.sh wait             until no
  switch and no start is under way

--wait: wait for another switch first.
If TARGET does not start, its fallback
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
    layout,
    output,
    runner,
    switch_lock,
    terminal,
)
from lockstep.onhost.operator import follow
from lockstep.onhost.switching import cancellation, switch_job
from lockstep.onhost.systemd import transient, units

_FLAGS = {"status": ("--json", "--follow"), "log": ("-f",), "wait": (), "cancel": ()}


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring.

    A switch passes here twice before its worker begins, as the operator and as root, and each time
    the operator waits: what only the worker, the status or a rehearsal needs is imported there.
    """
    paths = paths or layout.Paths()
    if not argv or {"-h", "--help"} & set(argv):
        print((__doc__ or "").strip())
        return errors.EXIT_DONE if argv else errors.EXIT_USAGE
    if argv[0] in switch_job.WORK:
        from lockstep.onhost.operator import switch_worker

        return switch_worker.main(argv, paths)
    name, *rest = argv
    host = config.load_host(paths.targets)
    subject = rest.pop(0) if name == "log" and rest and not rest[0].startswith("-") else None
    _check_words(host, name, subject, rest)
    if name == "wait":
        return follow.wait(host, paths)
    if name in ("status", "log"):
        # Root sees containers and journals too; without a rule, what everybody may see is shown.
        if not units.is_root() and _may_become_root(argv):
            _become_root(argv)
        if name == "log":
            return follow.log(host.target(str(subject)), follow="-f" in rest)
        if "--follow" in rest:
            return _followed(host, paths)
        return _status(host, paths, as_json="--json" in rest)
    _be_root([name, *rest])
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    if name == "cancel":
        return cancel(user, paths)
    if "--dry" in rest:
        from lockstep.onhost.operator import switch_worker

        return switch_worker.rehearse(name, user, host, paths)
    if "--instead" in rest:
        _request_cancellation(user, paths, restore=False)
    return asked(name, user, paths, wait=not {"--wait", "--instead"}.isdisjoint(rest))


def _check_words(host: config.Host, name: str, subject: str | None, flags: list[str]) -> None:
    target = subject if name == "log" else name
    words = [*host.targets, "none", *_FLAGS]
    if name == "log" and subject is None:
        raise errors.Problem(f"log of what? Known: {', '.join(host.targets)}", errors.EXIT_USAGE)
    if target not in (host.targets if name == "log" else words):
        known = ", ".join(host.targets if name == "log" else words)
        raise errors.Problem(f"unknown target {target!r}. Known: {known}", errors.EXIT_USAGE)
    allowed = _FLAGS.get(name, ("--wait", "--instead", "--dry"))
    if wrong := [flag for flag in flags if flag not in allowed] or flags[1:]:
        said = f"{name} does not take {' '.join(wrong)}. See switch.sh --help"
        raise errors.Problem(said, errors.EXIT_USAGE)


def _status(host: config.Host, paths: layout.Paths, as_json: bool) -> int:
    from lockstep.onhost.operator import status

    found = status.gather(host, paths)
    if as_json:
        print(json.dumps(status.as_json(found), indent=2))
    else:
        status.render(found)
    return errors.EXIT_DONE


def _followed(host: config.Host, paths: layout.Paths) -> int:
    """The facts as a line of JSON each second, as long as somebody reads."""
    from lockstep.onhost.operator import facts

    now = facts.Facts(host, paths).now
    while not output.nobody_reads():
        output.say(json.dumps(now()))
        clock.sleep(facts.FRESH_S)
    return errors.EXIT_DONE


def _be_root(argv: list[str]) -> None:
    """Return as root, become root, or refuse."""
    if units.is_root():
        return
    if not _may_become_root(argv):
        said = f"{getpass.getuser()} may not switch models on this host: no sudo rule"
        remedy = "Remedy: add the user to the operators in the inventory and deploy"
        raise errors.Problem(f"{said}. {remedy}", errors.EXIT_NOT_PERMITTED)
    _become_root(argv)


def _become_root(argv: list[str]) -> None:
    """Replace this process by sudo with exactly the arguments that the sudoers rule names."""
    command = ["sudo", "-n", "--", *switch_job.program(), *argv]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _may_become_root(argv: list[str]) -> bool:
    with suppress(errors.Problem):
        words = ["sudo", "-n", "-l", "--", *switch_job.program(), *argv]
        return runner.run(words, timeout=20).returncode == 0
    return False


def asked(
    name: str, user: str, paths: layout.Paths, wait: bool, say: Callable[[str], None] = terminal.say
) -> int:
    """Have systemd do the switch and show its output until it ends; its exit code.

    Locked (75) while another one is under way, or that is waited for.
    """
    job = switch_job.job(name, user, paths)
    since = time.time()
    _start(job, paths, wait)
    code = follow.follow(job, from_end=False, say=say)
    if code != transient.EXIT_GONE:
        return code
    return _code_on_record(paths, since, say, (user, name))


def cancel(user: str, paths: layout.Paths, say: Callable[[str], None] = terminal.say) -> int:
    """End the switch under way, and show that until what was hot before is hot again.

    0 where that has happened, else the exit code with which the switch ended. Problem where no
    switch is under way here.
    """
    since = time.time()
    job = _request_cancellation(user, paths, restore=True)
    if job is None:
        raise errors.Problem(_nothing_to_cancel(paths))
    code = follow.follow(job, from_end=True, say=say)
    if code == transient.EXIT_GONE:
        code = _code_on_record(paths, since, say)
    if code == errors.EXIT_DONE:
        raise errors.Problem("the switch had ended well before it could be cancelled")
    return errors.EXIT_DONE if code == errors.EXIT_CANCELLED else code


def _code_on_record(
    paths: layout.Paths,
    since: float,
    say: Callable[[str], None],
    meant: tuple[str, str] | None = None,
) -> int:
    """How a switch ended whose unit the next switch has taken: as its record says, in its words.

    `meant`: who asked for it, and its target.
    """
    from lockstep.onhost.records import switches

    ends = [
        each
        for each in switches.load(paths)
        if each.at >= since and meant in (None, (each.person, each.target))
    ]
    if not ends:
        say("somebody stopped the switch")
        return transient.EXIT_GONE
    # The first since then: what came later is the next one's.
    say(ends[-1].said)
    return ends[-1].code


def _request_cancellation(user: str, paths: layout.Paths, restore: bool) -> transient.Job | None:
    """Ask the switch under way to end; None where there is none."""
    job = switch_job.job_under_way(paths)
    while transient.running(units.show([job.unit])[job.unit]):
        # A request that comes before the switch has begun would be taken for one of an earlier.
        if switch_lock.holder(paths.switch_lock):
            cancellation.ask(paths, user, restore=restore)
            return job
        clock.sleep(0.1)
    return None


def _nothing_to_cancel(paths: layout.Paths) -> str:
    holder = switch_lock.holder(paths.switch_lock)
    if holder is None:
        return "no switch is under way. Remedy: switch.sh none stops the model"
    return f"{holder}, and that is not to be cancelled from here. Remedy: switch.sh wait"


def _start(job: transient.Job, paths: layout.Paths, wait: bool) -> None:
    path = paths.switch_lock
    told = -30.0
    while True:
        holder = switch_lock.holder(path)
        try:
            if holder is None:
                transient.start(job, paths, say=lambda _: None, wait=False)
                return
        except transient.Busy:
            holder = switch_lock.holder(path)
        if not wait:
            raise switch_lock.Locked(holder)
        if output.nobody_reads():
            # Whoever asked has gone, and is not to be surprised by a switch later.
            raise errors.Problem("nobody waits for this switch any more: it was not begun")
        if clock.now() - told >= 15:
            told = clock.now()
            terminal.say(f"waiting: {holder or 'somebody else is switching'}")
        clock.sleep(0.5)
