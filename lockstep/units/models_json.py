"""The models of a host for its programs: their own dataclasses, written as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lockstep.files.managed_file import CONFIGURATION, ManagedFile
from lockstep.inventory.cluster import ClusterMembers
from lockstep.inventory.settings import Settings
from lockstep.onhost.core.config import HostConfig
from lockstep.onhost.core.schema import values_of
from lockstep.onhost.core.topology import Cluster, TopologyMember
from lockstep.units.model_variants import Variant

MODELS = f"{CONFIGURATION}/models.json"


def models_file(settings: Settings, variants: Sequence[Variant]) -> ManagedFile:
    """Return the file that `load_host` reads on the host."""
    text = json.dumps(values_of(host_configuration(settings, variants)), indent=2) + "\n"
    return ManagedFile(MODELS, text, check="json", stage="services")


def host_configuration(settings: Settings, variants: Sequence[Variant]) -> HostConfig:
    """Return a host's models and clusters as its own programs see them."""
    groups = [variant.model.group for variant in variants]
    return HostConfig(
        name=settings.name,
        models={variant.name: variant.served_model for variant in variants},
        webui_unit=f"{settings.webui.unit}.service",
        clusters={group.name: _cluster(settings, group) for group in groups if group},
        max_clock_mhz=settings.gpu.max_clock_mhz,
        boot=settings.boot,
    )


def _cluster(settings: Settings, group: ClusterMembers) -> Cluster:
    devices = settings.fabric.devices
    links = dict.fromkeys((*settings.fabric.interfaces, group.interface))
    return Cluster(
        name=group.name,
        rank=group.rank,
        port=group.data.port,
        members=tuple(TopologyMember(member.name, member.address) for member in group.members),
        links={name: devices.get(name, "") for name in links},
    )
