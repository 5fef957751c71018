"""The one way back: the journal of a deploy in reverse, and units that run with its files."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.onhost.core import config, errors, event_lines, layout
from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.switching import hot_change_under_way, rollout_lock, switch
from lockstep.onhost.systemd import outdated_units, units
from lockstep.onhost.webui import data_copies, update

# A unit's own timeouts limit its start.
_START_S = 3600.0


def roll_back_deploy(paths: layout.Paths, why: str) -> int:
    """Restore what the journal of an unfinished deploy has, and put `why` on record.

    A model that ran with the deployed files has to serve again, as after a switch.

    Returns:
        0 done, also if nothing was kept; 1 a unit does not start; 3 and 4 as for a switch.
    """
    with rollout_lock.hold_switch_lock(paths):
        document = rollback_journal.unfinished_journal(paths)
        # Members of a cluster return together, when the deploy tells them.
        if document is None or document["rollout"]:
            event_lines.say("nothing was kept here to return to")
            return errors.EXIT_DONE
        has_restored = restore_deploy(paths, document, why)
        code = revive_outdated_model(paths, document["hot"])
        rollback_journal.discard(paths)
    event_lines.say("this host is as it was before the deploy")
    return code or (errors.EXIT_DONE if has_restored else errors.EXIT_FAILED)


def return_from_cluster_rollout(paths: layout.Paths, rollout: str, why: str) -> int:
    """Return from this member's part of a cluster's rollout of that id, and put `why` on record."""
    with rollout_lock.hold_switch_lock(paths):
        document = rollback_journal.unfinished_journal(paths)
        if document is None or document["rollout"] != rollout:
            event_lines.say("nothing was changed here")
        else:
            restore_deploy(paths, document, why)
            rollback_journal.discard(paths)
            event_lines.say("as it was before this deploy")
    return errors.EXIT_DONE


def restore_deploy(paths: layout.Paths, document: rollback_journal.Document, why: str = "") -> bool:
    """Restore files, link, units that ran and Open WebUI's data; tell whether all units do.

    The switch lock is held. A model is stopped only if there was none of its unit before.
    """
    absent = rollback_journal.absent_units(document)
    deployed_host = config.load_host(paths.models)
    model_units = {model.unit for model in deployed_host.models.values()}
    for model in deployed_host.models.values():
        if model.unit in absent:
            switch.Switch(deployed_host, paths, user=rollout_lock.USER).stop_failed_model(
                model.name
            )
    _end_units(absent - model_units)
    rollback_journal.restore_files(paths, document)
    generations.record_rollback(paths, int(document["since"]), why)
    model_units |= {model.unit for model in config.load_host(paths.models).models.values()}
    _restore_webui_data(paths, document)
    helpers = {name: was for name, was in document["units"].items() if name not in model_units}
    return all([_restore_unit_state(paths, name, was) for name, was in helpers.items()])


def revive_outdated_model(paths: layout.Paths, was: str | None) -> int:
    """Start the model again that runs with other files, or `was` if none is up; see
    `revive_model`."""
    name = _model_to_restart(paths, was)
    if name is None:
        return errors.EXIT_DONE
    work = hot_change_under_way.HotWork(name, rollout_lock.USER)
    with hot_change_under_way.keep_on_record(paths, "rollout", work):
        return revive_model(paths, name)


def _model_to_restart(paths: layout.Paths, was: str | None) -> str | None:
    """Return the model that must start again: one that runs with other files, or else `was`."""
    host = config.load_host(paths.models)
    state = units.units_by_name(model.unit for model in host.models.values())
    up = next((model for model in host.models.values() if state[model.unit].up), None)
    if up is not None:
        return up.name if outdated_units.has_outdated_key(state[up.unit], paths) else None
    return was


def revive_model(paths: layout.Paths, name: str) -> int:
    """Start a model with the restored files; return 0 if it serves, else 3 or 4 as for a switch."""
    host = config.load_host(paths.models)
    if name not in host.models:
        event_lines.say(f"NO MODEL IS HOT: there was no {name} before")
        return errors.EXIT_NOTHING_HOT
    code = switch.Switch(host, paths, user=rollout_lock.USER).revive_model(name)
    if code == errors.EXIT_DONE:
        event_lines.say(f"{name} is hot again, as it was before this deploy")
    return code


def _end_units(names: Iterable[str]) -> None:
    """End units that the deploy brought."""
    for name in sorted(names):
        _control("disable", name, "--now")


def _restore_unit_state(paths: layout.Paths, name: str, was: dict[str, bool]) -> bool:
    """Make a unit start at boot and run now as it did; tell whether it does."""
    unit = units.units_by_name([name])[name]
    if was["enabled"] != unit.is_enabled and not _control(
        "enable" if was["enabled"] else "disable", name
    ):
        return False
    if not was["up"]:
        return True
    # A socket has no process, and no restart while its service runs.
    is_outdated = unit.up and unit.main_pid and outdated_units.has_outdated_key(unit, paths)
    return bool(unit.up and not is_outdated) or _control("restart", name)


def _control(verb: str, unit: str, *options: str) -> bool:
    try:
        units.control_units(verb, unit, options=options, limit_s=_START_S)
    except errors.Problem as problem:
        event_lines.say(str(problem))
        return False
    return True


def _restore_webui_data(paths: layout.Paths, document: rollback_journal.Document) -> None:
    """Make Open WebUI's earlier image start with the data copied when it was replaced."""
    if data_copies.load(paths).image in ("", document["webui"]):
        return
    copies = [
        copy for copy in data_copies.complete_copies(paths) if copy.image == document["webui"]
    ]
    if copies:
        update.select_copy_for_image(paths, document["webui"], copies[0].number)
