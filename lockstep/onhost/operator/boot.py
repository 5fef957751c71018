"""Make a model hot after a boot, as the inventory's `boot` asks, by an ordinary switch.

usage: boot

Runs as root in lockstep-boot.service. Does nothing, and says why, where something is hot or an
operator has switched since the boot, where the last switch left nothing, where a recipe forbids it,
or where another member of the cluster begins. A cluster's target waits for its members.

exit codes: those of switch.sh, with 0 for a fallback that is hot; 1 no model is made hot: two boots
            were cut off under one, or a member did not answer; 2 unreadable configuration
"""

from __future__ import annotations

import time
from contextlib import suppress

from lockstep.onhost.cluster import members, wire_client
from lockstep.onhost.core import (
    clock,
    config,
    errors,
    layout,
    output,
    program,
    switch_lock,
    terminal,
)
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.records import boots, switches
from lockstep.onhost.systemd import units

#: A Spark is back in two minutes; one whose disk is checked first takes longer.
MEMBERS_S = 600.0
_EVERY_S = 2.0
_REMEDY = "Remedy: find the cause (`lockstep help boot`), then switch.sh"


class LeftAlone(Exception):
    """Why there is nothing to do."""


def wanted(host: config.Host, paths: layout.Paths) -> config.Target:
    """The target to make hot. LeftAlone where there is none; Problem where it stays down."""
    record = boots.load(paths)
    _idle(host, paths)
    name = record.hot if host.boot == "last" else host.boot
    if name is None or host.boot == "none":
        raise LeftAlone("no model was hot at the end of the last switch")
    if name not in host.targets:
        raise LeftAlone(f"{name}, which was hot last, is no target any more")
    target = host.target(name)
    for each in (target, host.targets.get(target.fallback or "")):
        if each and each.not_at_boot:
            raise LeftAlone(f"{each.name}: recipe {each.recipe} forbids it: {each.not_at_boot}")
    cluster = host.cluster(name)
    if cluster and cluster.rank:
        raise LeftAlone(f"{cluster.first.name} makes {name} hot")
    if reason := boots.crash_loop(record, boots.boot_id(paths)):
        raise errors.Problem(f"{name} stays down: {reason}. {_REMEDY} {name}")
    try:
        boots.begun(paths, None)
    except OSError as error:
        raise errors.Problem(
            f"{name} stays down: {paths.boots}: {errors.why(error)}, so a start that freezes this "
            f"host would not be counted. {_REMEDY} {name}"
        ) from error
    return target


def _idle(host: config.Host, paths: layout.Paths) -> None:
    """LeftAlone where somebody has decided since the boot what is hot."""
    state = units.show(target.unit for target in host.targets.values())
    up = [target.name for target in host.targets.values() if state[target.unit].up]
    if up:
        raise LeftAlone(f"{up[0]} is up already")
    if boots.load(paths).switched_in == boots.boot_id(paths):
        raise LeftAlone("somebody has switched since the boot")


def wait_for_members(
    host: config.Host,
    target: config.Target,
    cluster: config.Cluster,
    paths: layout.Paths,
) -> None:
    """Return when every member of the target's cluster answers, and none has a model up.

    LeftAlone where one has, or somebody switches here meanwhile; Problem names who is missing.
    """
    caller = wire_client.Caller.of(cluster, paths)
    began, told = clock.now(), False
    while True:
        _idle(host, paths)
        missing = {}
        for name, answer in caller.ask_all(cluster.members, "state").items():
            if isinstance(answer, errors.Problem):
                missing[name] = answer
            elif up := members.up(answer):
                raise LeftAlone(f"{name} has {up[0]} up")
        if not missing:
            return
        waited = clock.now() - began
        if waited >= MEMBERS_S:
            raise errors.Problem(
                f"{target.name} stays down: after {waited:.0f} s there is no answer of "
                f"{', '.join(missing)} ({next(iter(missing.values()))}). {_REMEDY} {target.name}"
            )
        if not told:
            told = True
            terminal.say(f"{target.name} waits for {', '.join(missing)}")
        clock.sleep(_EVERY_S)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    program.parser(__doc__).parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.targets)
    try:
        target = wanted(host, paths)
        if cluster := host.cluster(target.name):
            wait_for_members(host, target, cluster, paths)
        code = switch_sh.asked(target.name, boots.BOOT, paths, wait=False)
    except (LeftAlone, switch_lock.Locked) as reason:
        output.say(f"lockstep boot: nothing is made hot: {reason}")
        _note(paths, str(reason))
        return errors.EXIT_DONE
    except errors.Problem as problem:
        _note(paths, str(problem))
        name = boots.load(paths).hot if host.boot == "last" else host.boot
        # The record of boots is for root alone, and this one is not.
        with suppress(OSError):
            what = boots.BOOT, name or "none", problem.code, str(problem)
            switches.keep(paths, switches.Ended(time.time(), 0.0, *what))
        raise
    return errors.EXIT_DONE if code == errors.EXIT_FALLBACK else code


def _note(paths: layout.Paths, said: str) -> None:
    with suppress(OSError):
        boots.begun(paths, said)
