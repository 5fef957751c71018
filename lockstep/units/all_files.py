"""Everything that the deploy writes on a Spark as files: one pure function of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import ManagedFile
from lockstep.files.programs import programs
from lockstep.inventory.bound_targets import BoundTarget
from lockstep.inventory.neighbours import Partners, Ring
from lockstep.inventory.settings import Settings
from lockstep.lock.pins import Pins
from lockstep.onhost.gateway.configuration import Peer
from lockstep.system.base_files import host_files
from lockstep.system.firewall import firewall_files
from lockstep.system.netplan import netplan_files
from lockstep.units.agent_unit import agent_units
from lockstep.units.backup_twin import twin_files
from lockstep.units.backup_unit import backup_units
from lockstep.units.boot_unit import boot_units
from lockstep.units.gateway_unit import gateway_files
from lockstep.units.gpu_unit import gpu_unit
from lockstep.units.memory_unit import memory_unit
from lockstep.units.model_units import model_units, webui_unit
from lockstep.units.scripts import scripts, sudoers
from lockstep.units.sense_units import sense_units
from lockstep.units.targets_json import targets_file
from lockstep.units.variants import variants
from lockstep.units.wedge_units import wedge_units


def artefacts(
    settings: Settings,
    targets: tuple[BoundTarget, ...],
    pins: Pins,
    *,
    engine_id: str,
    peers: Sequence[Peer] = (),
    ring: Ring | None = None,
    backups: Partners | None = None,
) -> tuple[ManagedFile, ...]:
    """All files of one host: its own, the firewall's, programs, units and scripts, in this order.

    Args:
        settings: The host's data.
        targets: Its targets with their recipes.
        pins: What every tag, branch and revision stands for.
        engine_id: Name of the venv engine's generation ("" where no target needs one).
        peers: Gateways of other hosts.
        ring: Its place among the monitored hosts; None: it has none.
        backups: Who keeps its backups and whose it keeps; None: no other host.

    Raises:
        LockstepError: something that cannot be written down safely, with what, where and remedy.
    """
    made = variants(settings, targets, pins, engine_id=engine_id)
    webui = (webui_unit(settings, made, pins),) if settings.webui.enabled else ()
    found = (
        *host_files(settings),
        *firewall_files(settings, targets, peers, ring, backups),
        *netplan_files(settings),
        *programs(),
        targets_file(settings, made),
        *scripts(settings, made),
        *model_units(settings, made),
        *gateway_files(settings, made, pins, peers),
        *webui,
        *wedge_units(),
        *gpu_unit(settings),
        *sense_units(made),
        *boot_units(settings, made),
        *backup_units(settings, backups),
        *twin_files(settings, backups),
        memory_unit(),
        *agent_units(variant.target.group for variant in made if variant.target.group),
        sudoers(made),
    )
    double = next((path for path, n in Counter(f.path for f in found).items() if n > 1), None)
    if double is not None:
        raise InventoryError(
            "two things would write one file",
            where=settings.name,
            found=double,
            remedy="Give launcher and scripts of each target a path of their own.",
        )
    return found
