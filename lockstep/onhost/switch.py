#!/usr/bin/python3
"""Choose the one model that is hot here.

switch.sh TARGET [--wait]  make it hot
switch.sh none [--wait]    stop all
switch.sh status [--json]  what is hot

--wait: wait while somebody else is
switching. If TARGET does not start, the
model before it is started again.
Ctrl-C or a lost connection ends the
watching, not the switch.

Exit codes:
 0 done
 1 failed; what is hot now is said
 2 wrong use
75 somebody else is switching
77 not permitted (no sudo rule)
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common, lock, status, switching, terminal, transient, units
else:
    import common
    import lock
    import status
    import switching
    import terminal
    import transient
    import units

_WORKER = "--worker"


def main(argv: list[str], paths: common.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or common.Paths()
    if not argv or {"-h", "--help"} & set(argv):
        print((__doc__ or "").strip())
        return common.EXIT_DONE if argv else common.EXIT_USAGE
    if argv[0] == _WORKER:
        return _worker(argv[1:], paths)
    name, *flags = argv
    allowed = {"--json"} if name == "status" else {"--wait"}
    if wrong := [flag for flag in flags if flag not in allowed]:
        raise common.Problem(
            f"{name} does not take {' '.join(wrong)}. See switch.sh --help", common.EXIT_USAGE
        )
    host = common.load_host(paths.targets)
    if name == "status":
        # Root sees containers and journals too; without a rule, what everybody may see is shown.
        if not units.is_root() and _may_become_root(argv):
            _become_root(argv)
        return _status(host, paths, as_json="--json" in flags)
    if name != "none":
        _known(host, name)
    if not units.is_root():
        wanted = [name, *(["--wait"] if flags else [])]
        if not _may_become_root(wanted):
            raise common.Problem(
                f"{getpass.getuser()} may not switch models on this host: no sudo rule. Remedy: "
                "add the user to the operators in the inventory and deploy",
                common.EXIT_NOT_PERMITTED,
            )
        _become_root(wanted)
    return _watch(name, paths, wait=bool(flags))


def _known(host: common.Host, name: str) -> None:
    if name not in host.targets:
        words = ", ".join([*host.targets, "none", "status"])
        raise common.Problem(f"unknown target {name!r}. Known: {words}", common.EXIT_USAGE)


def _status(host: common.Host, paths: common.Paths, as_json: bool) -> int:
    found = status.gather(host, paths)
    if as_json:
        print(json.dumps(status.as_json(found), indent=2))
    else:
        status.render(found)
    return common.EXIT_DONE


def _become_root(argv: list[str]) -> None:
    """Replace this process by sudo with exactly the arguments that the sudoers rule names."""
    command = ["sudo", "-n", "--", *_program(), *argv]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _may_become_root(argv: list[str]) -> bool:
    try:
        asked = common.run(["sudo", "-n", "-l", "--", *_program(), *argv], timeout=20)
    except common.Problem:
        return False
    return asked.returncode == 0


def _program() -> list[str]:
    return ["/usr/bin/python3", str(Path(__file__).resolve())]


def _watch(name: str, paths: common.Paths, wait: bool) -> int:
    """Have systemd do the switch and show its output until it ends."""
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    job = transient.Job(
        name="switch",
        unit_prefix="lockstep-",  # status.SWITCH_UNIT
        argv=(*_program(), _WORKER, name, user),
        log=status.switch_log(paths),
        # status shows its last line to everybody.
        log_mode=0o644,
        # A switch must survive the memory pressure that it may be the remedy for.
        properties=("OOMScoreAdjust=-900",),
    )
    _start(job, paths, wait)
    try:
        follower = transient.Follower(job, terminal.say, heartbeat_s=60, tell_failure=False)
        return follower.follow(from_end=False)
    except KeyboardInterrupt:
        common.say("")
        terminal.say("The switch goes on without you. Watch it with: switch.sh status")
        return 130


def _start(job: transient.Job, paths: common.Paths, wait: bool) -> None:
    path = paths.run / "switch.lock"
    told = -30.0
    while True:
        holder = lock.holder(path)
        try:
            if holder is None:
                transient.start(job, paths, say=lambda _: None, wait=False)
                return
        except transient.Busy:
            holder = lock.holder(path)
        if not wait:
            raise lock.Locked(holder)
        if time.monotonic() - told >= 15:
            told = time.monotonic()
            terminal.say(f"waiting: {holder or 'somebody else is switching'}")
        time.sleep(0.5)


def _worker(argv: list[str], paths: common.Paths) -> int:
    """The switch itself, as root, inside lockstep-switch.service."""
    name, user = argv
    host = common.load_host(paths.targets)
    switch = switching.Switch(host, paths)
    with lock.held(paths.run / "switch.lock", user, name):
        return switch.none() if name == "none" else switch.to(name)


if __name__ == "__main__":
    # The worker's lines are folded by those who watch it.
    shape = str if _WORKER in sys.argv else terminal.folded
    sys.exit(common.ended("switch.sh", lambda: main(sys.argv[1:]), shape))
