"""Hot models that this run will stop, said before it touches anything."""

from __future__ import annotations

from pyinfra import host

from lockstep.deploy.events import Interrupts
from lockstep.deploy.questions import SYSTEM_UNITS
from lockstep.tasks import base, events, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.operations import rollout, services
from lockstep.units.variants import unit_names

_HOT = "ruler.models"


def say() -> None:
    """Tell the program that started this run which hot models of the current host it will stop."""
    if not events.has_listener():
        return
    desired_state = run.current()
    ranks = unit_names([model for model in desired_state.plan.models if model.group])
    restarting, leaving = rollout.interrupted_units(desired_state.model_units, ranks)
    _, with_docker = services.outdated_units(
        SYSTEM_UNITS, base.restart_keys(desired_state), base.in_containers(desired_state)
    )
    restarting = list(dict.fromkeys((*restarting, *with_docker)))
    if not restarting and not leaving:
        return
    hot = facts.ask_anew({_HOT: None}).get(_HOT) or {}
    for unit, hot_model in hot.items():
        if unit in (*restarting, *leaving):
            events.say(
                Interrupts(host.name, hot_model["name"], unit in restarting, hot_model["requests"])
            )
