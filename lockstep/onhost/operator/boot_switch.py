"""Make a model hot after a boot, as the inventory's `boot` says, by a normal switch.

usage: boot

Runs as root in lockstep-boot.service. Does nothing, and says why, if something is hot, if an
operator has switched since the boot, if the last switch left nothing hot, if a recipe forbids it,
or if another member of the cluster begins. A cluster's model waits for its members.

exit codes: those of switch.sh, with 0 for a fallback that is hot; 1 no model is made hot: two boots
            were cut off under one, or a member did not answer; 2 unreadable configuration
"""

from __future__ import annotations

import time
from contextlib import suppress

from lockstep.onhost.cluster import member_client, switch_member_calls
from lockstep.onhost.core import (
    clock,
    config,
    errors,
    event_lines,
    layout,
    program_command_lines,
    switch_lock,
    terminal_lines,
)
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.records import models_by_boot, switch_history
from lockstep.onhost.systemd import units

#: A Spark is back in two minutes; one whose disk is checked first takes longer.
MEMBERS_S = 600.0
_EVERY_S = 2.0
_REMEDY = "Remedy: find the cause (`lockstep help boot`), then switch.sh"


class NoModelAtBoot(Exception):
    """The reason why nothing is to be done."""


def wanted_model(host: config.HostConfig, paths: layout.Paths) -> config.Model:
    """Return the model to make hot.

    Raises:
        NoModelAtBoot: There is none.
        errors.Problem: It must stay down.
    """
    record = models_by_boot.load(paths)
    _refuse_if_switched_since_boot(host, paths)
    name = record.hot if host.boot == "last" else host.boot
    if host.boot == "last" and record == models_by_boot.BootRecord() and paths.boots.exists():
        raise NoModelAtBoot(
            f"{paths.boots} cannot be read, or is of another version of Lockstep; it is written "
            "anew"
        )
    if name is None or host.boot == "none":
        raise NoModelAtBoot("no model was hot at the end of the last switch")
    if name not in host.models:
        raise NoModelAtBoot(f"{name}, which was hot last, is no model of this host any more")
    model = host.model(name)
    for candidate in (model, host.models.get(model.fallback or "")):
        if candidate and candidate.not_at_boot:
            raise NoModelAtBoot(
                f"{candidate.name}: recipe {candidate.recipe} forbids it: {candidate.not_at_boot}"
            )
    cluster = host.cluster_of_model(name)
    if cluster and cluster.rank:
        raise NoModelAtBoot(f"{cluster.first_member.name} makes {name} hot")
    if reason := models_by_boot.crash_loop_reason(record, models_by_boot.boot_id(paths)):
        raise errors.Problem(f"{name} stays down: {reason}. {_REMEDY} {name}")
    try:
        models_by_boot.record_boot_begin(paths, None)
    except OSError as error:
        raise errors.Problem(
            f"{name} stays down: {paths.boots}: {errors.why(error)}, so a start that freezes "
            f"this host would not be counted. {_REMEDY} {name}"
        ) from error
    return model


def _refuse_if_switched_since_boot(host: config.HostConfig, paths: layout.Paths) -> None:
    """Raise NoModelAtBoot if somebody has decided since the boot which model is hot."""
    state = units.units_by_name(model.unit for model in host.models.values())
    up = [model.name for model in host.models.values() if state[model.unit].up]
    if up:
        raise NoModelAtBoot(f"{up[0]} is up already")
    if models_by_boot.load(paths).switched_in == models_by_boot.boot_id(paths):
        raise NoModelAtBoot("somebody has switched since the boot")


def wait_for_members(
    host: config.HostConfig, model: config.Model, cluster: config.Cluster, paths: layout.Paths
) -> None:
    """Wait until every member of the model's cluster answers, and none has a model up.

    Raises:
        NoModelAtBoot: A member has one, or somebody switches here meanwhile.
        errors.Problem: Members are missing; it names them.
    """
    caller = member_client.MemberClient.from_cluster(cluster, paths)
    began, has_reported = clock.now(), False
    while True:
        _refuse_if_switched_since_boot(host, paths)
        missing = {}
        for name, answer in caller.ask_all(cluster.members, "state").items():
            if isinstance(answer, errors.Problem):
                missing[name] = answer
            elif up := switch_member_calls.up_models(answer):
                raise NoModelAtBoot(f"{name} has {up[0]} up")
        if not missing:
            return
        waited_s = clock.now() - began
        if waited_s >= MEMBERS_S:
            raise errors.Problem(
                f"{model.name} stays down: after {waited_s:.0f} s there is no answer of "
                f"{', '.join(missing)} ({next(iter(missing.values()))}). {_REMEDY} {model.name}"
            )
        if not has_reported:
            has_reported = True
            terminal_lines.say(f"{model.name} waits for {', '.join(missing)}")
        clock.sleep(_EVERY_S)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    program_command_lines.parser(__doc__).parse_args(argv)
    paths = paths or layout.Paths()
    host = config.load_host(paths.models)
    try:
        model = wanted_model(host, paths)
        if cluster := host.cluster_of_model(model.name):
            wait_for_members(host, model, cluster, paths)
        code = switch_sh.run_switch(model.name, models_by_boot.BOOT, paths, wait=False)
    except (NoModelAtBoot, switch_lock.SwitchUnderWay) as reason:
        event_lines.say(f"lockstep boot: nothing is made hot: {reason}")
        _record_no_model_reason(paths, str(reason))
        return errors.EXIT_DONE
    except errors.Problem as problem:
        _record_no_model_reason(paths, str(problem))
        name = models_by_boot.load(paths).hot if host.boot == "last" else host.boot
        # Recorded here too, because the record of boots is for root alone.
        with suppress(OSError):
            record_fields = models_by_boot.BOOT, name or "none", problem.code, str(problem)
            switch_history.add_switch_record(
                paths, switch_history.SwitchRecord(time.time(), 0.0, *record_fields)
            )
        raise
    return errors.EXIT_DONE if code == errors.EXIT_FALLBACK else code


def _record_no_model_reason(paths: layout.Paths, message: str) -> None:
    with suppress(OSError):
        models_by_boot.record_boot_begin(paths, message)
