"""What this run will stop that people use, said before it touches anything."""

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
    if not events.heard():
        return
    this = run.current()
    ranks = unit_names([target for target in this.plan.targets if target.group])
    again, gone = rollout.interrupted(this.model_units, ranks)
    _, with_docker = services.outdated(
        SYSTEM_UNITS, base.generations(this), base.in_containers(this)
    )
    again = list(dict.fromkeys((*again, *with_docker)))
    if not again and not gone:
        return
    hot = facts.ask_anew({_HOT: None}).get(_HOT) or {}
    for unit, model in hot.items():
        if unit in (*again, *gone):
            events.say(Interrupts(host.name, model["name"], unit in again, model["requests"]))
