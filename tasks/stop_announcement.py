"""Hot models that this run will stop, said before it touches anything."""

from __future__ import annotations

from pyinfra import host

from lockstep.deploy.events import Interrupts
from lockstep.deploy.questions import SYSTEM_UNITS
from lockstep.tasks import base
from lockstep.tasks.operations import rolling_restart, services
from lockstep.tasks.run import events_for_parent, run_state
from lockstep.tasks.run import reader_answers as facts
from lockstep.units.model_variants import unit_names

_HOT = "host_load.hot_models"


def announce_models_to_stop() -> None:
    """Tell the program that started this run which hot models of the current host it will stop."""
    if not events_for_parent.has_listener():
        return
    desired_state = run_state.current_desired_state()
    ranks = unit_names([model for model in desired_state.plan.models if model.group])
    restarting, leaving = rolling_restart.pending_restarts_and_stops(
        desired_state.model_units, ranks
    )
    _, with_docker = services.outdated_units(
        SYSTEM_UNITS,
        base.restart_key_by_service(desired_state),
        base.units_ended_by_docker_restart(desired_state),
    )
    restarting = list(dict.fromkeys((*restarting, *with_docker)))
    if not restarting and not leaving:
        return
    hot = facts.refreshed_answers({_HOT: None}).get(_HOT) or {}
    for unit, hot_model in hot.items():
        if unit in (*restarting, *leaving):
            events_for_parent.send_event(
                Interrupts(host.name, hot_model["name"], unit in restarting, hot_model["requests"])
            )
