"""All files that the deploy writes on a Spark, as one pure function of data."""

from __future__ import annotations

from collections import Counter

from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import ManagedFile
from lockstep.files.programs import program_files
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import Pins
from lockstep.system.base_files import host_files, needrestart_file
from lockstep.system.firewall import firewall_files
from lockstep.system.netplan import netplan_files
from lockstep.units.agent_unit import agent_units
from lockstep.units.backup_peer import peer_files
from lockstep.units.backup_unit import backup_units
from lockstep.units.gateway_unit import gateway_files
from lockstep.units.model_units import model_units, webui_unit
from lockstep.units.model_variants import variants
from lockstep.units.models_json import models_file
from lockstep.units.scripts import scripts, sudoers
from lockstep.units.watch_units import watch_units


def deployed_files(plan: HostPlan, pins: Pins, *, engine_id: str) -> tuple[ManagedFile, ...]:
    """Return all files of one host, in order: its own, the firewall's, programs, units, scripts.

    `engine_id` names the venv engine, "" where no model needs one.

    Raises:
        LockstepError: content that cannot be written down safely, with its place and remedy.
    """
    settings = plan.settings
    model_variants = variants(settings, plan.models, pins, engine_id=engine_id)
    webui = (webui_unit(settings, model_variants, pins),) if settings.webui.enabled else ()
    files_made = (
        *host_files(settings),
        *firewall_files(plan),
        *netplan_files(settings),
        *program_files(),
        models_file(settings, model_variants),
        *scripts(settings, model_variants),
        *model_units(settings, model_variants),
        *gateway_files(settings, model_variants, pins, plan.peers),
        *webui,
        *watch_units(plan, model_variants),
        *backup_units(plan),
        *peer_files(plan),
        *agent_units(plan.name, plan.groups),
        sudoers(model_variants),
        *plan.extra_files,
    )
    files_made = (*files_made, needrestart_file(files_made))
    double = next((path for path, n in Counter(f.path for f in files_made).items() if n > 1), None)
    if double is not None:
        raise InventoryError(
            "two things would write one file",
            where=settings.name,
            found=double,
            remedy="Give launcher and scripts of each model a path of their own.",
        )
    return files_made
