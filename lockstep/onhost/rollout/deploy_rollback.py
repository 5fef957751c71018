"""Return to the state before a deploy that did not end well on this host or another one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from lockstep.onhost.core import config, errors, layout, output
from lockstep.onhost.records import generations, rollback_snapshot
from lockstep.onhost.switching import hot_change, rollout_lock, switch
from lockstep.onhost.systemd import restart_key, units
from lockstep.onhost.webui import record, update

# A unit's own timeouts limit its start.
_START_S = 3600.0


def roll_back_deploy(paths: layout.Paths, why: str) -> int:
    """Restore the rollback snapshot, make units run with it, and put `why` on record.

    A model that ran with the deployed files has to serve again, as after a switch.

    Returns:
        0 done, also if nothing was kept; 1 a unit does not start; 3 and 4 as for a switch.
    """
    with rollout_lock.hold_switch_lock(paths):
        snapshot = rollback_snapshot.load(paths)
        # Members of a cluster return together, when the deploy tells them.
        if snapshot is None or snapshot["rollout"]:
            output.say("nothing was kept here to return to")
            return errors.EXIT_DONE
        absent = {PurePosixPath(path).name for path in snapshot["absent"]}
        deployed_host = config.load_host(paths.models)
        model_units = {model.unit for model in deployed_host.models.values()}
        for model in deployed_host.models.values():
            if model.unit in absent:
                switch.Switch(deployed_host, paths, user=rollout_lock.USER).stop_failed_model(
                    model.name
                )
        _end_units(absent & rollback_snapshot.watched_units(snapshot) - model_units)
        rollback_snapshot.restore_snapshot(paths, snapshot)
        generations.record_rollback(paths, int(snapshot["since"]), why)
        host = config.load_host(paths.models)
        model_units |= {model.unit for model in host.models.values()}
        _restore_webui_data(paths, snapshot)
        helpers = {name: was for name, was in snapshot["units"].items() if name not in model_units}
        faults = [
            name for name, was in helpers.items() if not _restore_unit_state(paths, name, was)
        ]
        code = _restart_hot_model(paths, host, snapshot["hot"])
        paths.rollback_snapshot.unlink(missing_ok=True)
    output.say("this host is as it was before the deploy")
    return code or (errors.EXIT_FAILED if faults else errors.EXIT_DONE)


def _restart_hot_model(paths: layout.Paths, host: config.HostConfig, was: str | None) -> int:
    """Make the hot model run with the restored files; return 0 if it serves."""
    state = units.show(model.unit for model in host.models.values())
    up = [model for model in host.models.values() if state[model.unit].up]
    name = up[0].name if up else was
    if name is None or name not in host.models:
        return errors.EXIT_DONE
    if up and not restart_key.old(state[up[0].unit], paths):
        return errors.EXIT_DONE
    work = hot_change.HotWork(name, rollout_lock.USER)
    with hot_change.keep_on_record(paths, "rollout", work):
        return switch.Switch(host, paths, user=rollout_lock.USER).revive_model(name)


def _end_units(names: Iterable[str]) -> None:
    """End units that the deploy brought."""
    for name in sorted(names):
        _control("disable", name, "--now")


def _restore_unit_state(paths: layout.Paths, name: str, was: dict[str, bool]) -> bool:
    """Make a unit start at boot and run now as it did; tell whether it does."""
    unit = units.show([name])[name]
    if was["enabled"] != unit.is_enabled and not _control(
        "enable" if was["enabled"] else "disable", name
    ):
        return False
    if not was["up"]:
        return True
    # A socket has no process, and no restart while its service runs.
    is_outdated = unit.up and unit.main_pid and restart_key.old(unit, paths)
    return bool(unit.up and not is_outdated) or _control("restart", name)


def _control(verb: str, unit: str, *options: str) -> bool:
    try:
        units.control_units(verb, unit, options=options, limit_s=_START_S)
    except errors.Problem as problem:
        output.say(str(problem))
        return False
    return True


def _restore_webui_data(paths: layout.Paths, snapshot: rollback_snapshot.Document) -> None:
    """Make Open WebUI's earlier image start with the data copied when it was replaced."""
    if record.load(paths).image in ("", snapshot["webui"]):
        return
    copies = [copy for copy in record.complete_copies(paths) if copy.image == snapshot["webui"]]
    if copies:
        update.select_copy_for_image(paths, snapshot["webui"], copies[0].number)
