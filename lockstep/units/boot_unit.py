"""The unit that makes a model hot after a boot, where the inventory asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.files.managed_file import AGENT_UNIT, STATE, SYSTEMD, ManagedFile, command
from lockstep.files.templating import render
from lockstep.inventory.cluster import Group
from lockstep.inventory.settings import Settings
from lockstep.onhost.records import boots
from lockstep.units.variants import Variant


def boot_units(settings: Settings, variants: Sequence[Variant]) -> tuple[ManagedFile, ...]:
    """The unit, enabled at boot; () where nothing is to be hot after one."""
    if settings.boot == "none":
        return ()
    text = render(
        "units/boot.service.j2",
        start=command("boot"),
        agent=AGENT_UNIT if _groups(variants) else "",
        container=any(variant.image for variant in variants),
        folders=(settings.paths.hub_cache, settings.paths.engines, STATE),
        addresses=_addresses(_groups(variants)),
    )
    return (ManagedFile(f"{SYSTEMD}/{boots.UNIT}", text, check="unit", stage="switch"),)


def _groups(variants: Sequence[Variant]) -> list[Group]:
    return [variant.target.group for variant in variants if variant.target.group]


def _addresses(groups: Iterable[Group]) -> list[str]:
    """Where the members of the host's clusters are asked."""
    every = (
        address for group in groups for member in group.members for address in member.addresses
    )
    return list(dict.fromkeys(every))
