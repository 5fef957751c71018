"""The switch itself, as root inside lockstep-switch.service, whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.onhost.cluster import coordinator, planner, wire_client
from lockstep.onhost.core import config, errors, layout, output, switch_lock, terminal
from lockstep.onhost.records import boots, switches
from lockstep.onhost.switching import switch as switching
from lockstep.onhost.switching import switch_job, unfinished
from lockstep.onhost.systemd import units

Say = Callable[[str], None]


def main(argv: list[str], paths: layout.Paths) -> int:
    """One of `switch_job.WORK` with its words, as root."""
    match argv:
        case [switch_job.WORKER, name, user]:
            return switches.switch_and_record(
                paths, user, name, lambda say: _switched(name, user, paths, say)
            )
        case [switch_job.FALL_BACK, name]:
            return _fall_back(name, paths)
    return _finish(paths)


def rehearse(name: str, user: str, host: config.Host, paths: layout.Paths) -> int:
    """Whether a switch would work, as an exit code of `switch.sh`; changes nothing."""
    if planner.concerns(host, name):
        return coordinator.GroupSwitch(host, paths, terminal.say, user).rehearse(name)
    return switching.Switch(host, paths, terminal.say).rehearse(name)


def _switched(name: str, user: str, paths: layout.Paths, say: switches.Telling) -> int:
    """The switch itself, inside lockstep-switch.service."""
    host = config.load_host(paths.targets)
    switch = switching.Switch(host, paths, say, user)
    if not planner.concerns(host, name):
        with switch_lock.held(paths.switch_lock, user, name):
            # Whoever held it until now may have started a rank here.
            if not planner.concerns(host, name):
                code = switch.none() if name == "none" else switch.to(name)
                say.hot_already = switch.hot_already
                _remember(host, paths, user)
                return code
    # Every member takes its lock itself, this host as well.
    group = coordinator.GroupSwitch(host, paths, say, user)
    if name != "none":
        code = group.to(name)
        say.hot_already = group.hot_already
        return code
    try:
        return group.none()
    except wire_client.Unreachable as problem:
        say(f"{problem}; stopping what is up here only")
    with switch_lock.held(paths.switch_lock, user, name):
        code = switch.none()
        _remember(host, paths, user)
        return code


def _fall_back(name: str, paths: layout.Paths) -> int:
    """The same job, where the memory floor has ended an engine and nobody was switching."""
    user, wanted = "the memory floor", f"what replaces {name}"

    def replaced(say: Say) -> int:
        host = config.load_host(paths.targets)
        switch = switching.Switch(host, paths, say, user)
        with switch_lock.held(paths.switch_lock, user, wanted):
            code = switch.instead_of(name)
            # A boot is not to bring back what was ended.
            _remember(host, paths, user)
            return code

    return switches.switch_and_record(paths, user, wanted, replaced)


def _finish(paths: layout.Paths) -> int:
    """ExecStopPost= of that unit: the worker did not come to its own end."""
    work = unfinished.take(paths)
    if work is None:
        return errors.EXIT_DONE
    return switches.switch_and_record(
        paths, work.user, work.target, lambda say: _finished(work, paths, say)
    )


def _finished(work: unfinished.Unfinished, paths: layout.Paths, say: Say) -> int:
    host = config.load_host(paths.targets)
    if work.switch:
        group = coordinator.GroupSwitch(host, paths, say, work.user, switch=work.switch)
        group.undo()
        return errors.EXIT_DONE
    switch = switching.Switch(host, paths, say, work.user)
    with switch_lock.held(paths.switch_lock, work.user, work.target):
        code = switch.finish(work)
        _remember(host, paths, work.user)
        return code


def _remember(host: config.Host, paths: layout.Paths, user: str) -> None:
    """Keep on disk what is hot now, for `boot: "last"`; a boot changes nothing of that."""
    if user == boots.BOOT:
        return
    state = units.show(target.unit for target in host.targets.values())
    hot = (target.name for target in host.targets.values() if state[target.unit].state == "hot")
    try:
        boots.switched(paths, next(hot, None))
    except OSError as error:
        output.say(f"{paths.boots}: {errors.why(error)}: a boot will not know of this switch")
