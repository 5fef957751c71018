"""The switch itself, as root inside lockstep-switch.service, for every kind of caller."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.onhost.cluster import member_client, switch_participants, switch_transaction
from lockstep.onhost.core import config, errors, event_lines, layout, switch_lock, terminal_lines
from lockstep.onhost.records import models_by_boot, switch_history
from lockstep.onhost.switching import hot_change_under_way, switch_commands
from lockstep.onhost.switching import switch as switching
from lockstep.onhost.systemd import units

Say = Callable[[str], None]


def main(argv: list[str], paths: layout.Paths) -> int:
    """Run one of `switch_commands.WORK` with its words, as root."""
    match argv:
        case [switch_commands.WORKER, name, user]:
            return switch_history.switch_and_record(
                paths, user, name, lambda say: _switch_model(name, user, paths, say)
            )
        case [switch_commands.FALL_BACK, name]:
            return _replace_ended_model(name, paths)
    return _finish_cut_off_switch(paths)


def rehearse_switch(name: str, user: str, host: config.HostConfig, paths: layout.Paths) -> int:
    """Check whether a switch would work, as an exit code of `switch.sh`; change nothing."""
    if switch_participants.concerns_other_members(host, name):
        return switch_transaction.ClusterSwitch(
            host, paths, terminal_lines.say, user
        ).rehearse_switch(name)
    return switching.Switch(host, paths, terminal_lines.say).rehearse_switch(name)


def _switch_model(
    name: str, user: str, paths: layout.Paths, say: switch_history.SwitchTelling
) -> int:
    """Make the switch, inside lockstep-switch.service."""
    host = config.load_host(paths.models)
    switch = switching.Switch(host, paths, say, user)
    if not switch_participants.concerns_other_members(host, name):
        with switch_lock.hold_lock(paths.switch_lock, user, name):
            # The previous holder of the lock may have started a rank here.
            if not switch_participants.concerns_other_members(host, name):
                code = switch.stop_all_models() if name == "none" else switch.switch_to(name)
                say.hot_already = switch.hot_already
                _store_hot_model_for_boot(host, paths, user)
                return code
    # Every member takes its lock itself, this host as well.
    cluster_switch = switch_transaction.ClusterSwitch(host, paths, say, user)
    if name != "none":
        code = cluster_switch.switch_to(name)
        say.hot_already = cluster_switch.hot_already
        return code
    try:
        return cluster_switch.stop_all_clusters()
    except member_client.MemberUnreachable as problem:
        say(f"{problem}; stopping what is up here only")
    with switch_lock.hold_lock(paths.switch_lock, user, name):
        code = switch.stop_all_models()
        _store_hot_model_for_boot(host, paths, user)
        return code


def _replace_ended_model(name: str, paths: layout.Paths) -> int:
    """Fall back, in the same job, after the memory watch has ended an engine outside a switch."""
    user, wanted_model = "the memory watch", f"what replaces {name}"

    def start_replacement(say: Say) -> int:
        host = config.load_host(paths.models)
        switch = switching.Switch(host, paths, say, user)
        with switch_lock.hold_lock(paths.switch_lock, user, wanted_model):
            code = switch.replace_memory_killed_model(name)
            # A boot must not bring back a model that was ended.
            _store_hot_model_for_boot(host, paths, user)
            return code

    return switch_history.switch_and_record(paths, user, wanted_model, start_replacement)


def _finish_cut_off_switch(paths: layout.Paths) -> int:
    """Clean up as ExecStopPost= of that unit, if the worker did not come to its own end."""
    work = hot_change_under_way.take_unfinished_work(paths, "switch")
    if work is None:
        return errors.EXIT_DONE
    return switch_history.switch_and_record(
        paths, work.user, work.model, lambda say: _bring_to_an_end(work, paths, say)
    )


def _bring_to_an_end(work: hot_change_under_way.HotWork, paths: layout.Paths, say: Say) -> int:
    host = config.load_host(paths.models)
    if work.cluster_switch:
        cluster_switch = switch_transaction.ClusterSwitch(
            host, paths, say, work.user, switch=work.cluster_switch
        )
        cluster_switch.undo()
        return errors.EXIT_DONE
    switch = switching.Switch(host, paths, say, work.user)
    with switch_lock.hold_lock(paths.switch_lock, work.user, work.model):
        code = switch.finish_cut_off_switch(work)
        _store_hot_model_for_boot(host, paths, work.user)
        return code


def _store_hot_model_for_boot(host: config.HostConfig, paths: layout.Paths, user: str) -> None:
    """Store the hot model for `boot: "last"`; a boot does not change that."""
    if user == models_by_boot.BOOT:
        return
    state = units.units_by_name(model.unit for model in host.models.values())
    hot = (model.name for model in host.models.values() if state[model.unit].state == "hot")
    try:
        models_by_boot.record_hot_model_of_switch(paths, next(hot, None))
    except OSError as error:
        event_lines.say(f"{paths.boots}: {errors.why(error)}: a boot will not know of this switch")
