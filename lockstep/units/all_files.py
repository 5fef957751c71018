"""Everything that the deploy writes on a Spark as files: one pure function of data."""

from __future__ import annotations

from collections import Counter

from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import ManagedFile
from lockstep.files.programs import programs
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.system.base_files import host_files, needrestart_file
from lockstep.system.firewall import firewall_files
from lockstep.system.netplan import netplan_files
from lockstep.units.agent_unit import agent_units
from lockstep.units.backup_twin import twin_files
from lockstep.units.backup_unit import backup_units
from lockstep.units.gateway_unit import gateway_files
from lockstep.units.model_units import model_units, webui_unit
from lockstep.units.scripts import scripts, sudoers
from lockstep.units.targets_json import targets_file
from lockstep.units.variants import variants
from lockstep.units.watch_units import watch_units


def artefacts(plan: HostPlan, pins: Pins, *, engine_id: str) -> tuple[ManagedFile, ...]:
    """All files of one host: its own, the firewall's, programs, units and scripts, in this order.

    `engine_id` names the venv engine's generation, "" where no target needs one.

    Raises:
        LockstepError: something that cannot be written down safely, with what, where and remedy.
    """
    settings = plan.settings
    made = variants(settings, plan.targets, pins, engine_id=engine_id)
    webui = (webui_unit(settings, made, pins),) if settings.webui.enabled else ()
    found = (
        *host_files(settings),
        *firewall_files(plan),
        *netplan_files(settings),
        *programs(),
        targets_file(settings, made),
        *scripts(settings, made),
        *model_units(settings, made),
        *gateway_files(settings, made, pins, plan.peers),
        *webui,
        *watch_units(plan, made),
        *backup_units(plan),
        *twin_files(plan),
        *agent_units(plan.groups),
        sudoers(made),
    )
    found = (*found, needrestart_file(found))
    double = next((path for path, n in Counter(f.path for f in found).items() if n > 1), None)
    if double is not None:
        raise InventoryError(
            "two things would write one file",
            where=settings.name,
            found=double,
            remedy="Give launcher and scripts of each target a path of their own.",
        )
    return found
