"""The unit of the proxy that merges roles, before an engine whose chat template refuses them.

Such an engine listens on a loopback port of its own; the proxy has the port of the API, so that
clients, Open WebUI and `switch.sh status` need not know of it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from importlib.resources import files

from lockstep.engine_id import digest
from lockstep.errors import InventoryError
from lockstep.managed import PROGRAMS, TOOLS_VENV, ManagedFile
from lockstep.packages import tool_requirements
from lockstep.pins import Pins
from lockstep.settings import Settings
from lockstep.templating import render
from lockstep.units import unit_path
from lockstep.variants import Variant

#: Packages that the program imports, as `Settings.tools` names them.
NEEDS = ("httpx2", "uvicorn")
PROGRAM = f"{PROGRAMS}/roles_proxy.py"
# A change in one of these is in force only after a restart.
_MODULES = ("roles.py", "roles_proxy.py")


def roles_units(
    settings: Settings, variants: Sequence[Variant], pins: Pins
) -> tuple[ManagedFile, ...]:
    """One unit per variant whose recipe needs the proxy.

    Raises:
        InventoryError: `tools` lacks a package that the proxy imports.
        ResolveError: ``pins`` holds no version of one.
    """
    proxied = [variant for variant in variants if variant.roles_unit]
    if not proxied:
        return ()
    missing = [name for name in NEEDS if name not in settings.tools]
    if missing:
        raise InventoryError(
            f"the proxy that merges roles for target {proxied[0].name} needs more tools",
            where=settings.name,
            found=f"tools without {', '.join(missing)}",
            remedy="Keep the entries of tools in group_data/all.py.",
        )
    exact = tool_requirements(settings, pins)
    tools = {name: exact[name] for name in NEEDS}
    return tuple(_unit(settings, variant, tools) for variant in proxied)


def _unit(settings: Settings, variant: Variant, tools: Mapping[str, str]) -> ManagedFile:
    assert variant.roles_unit is not None
    start = (
        *(f"{TOOLS_VENV}/bin/python", PROGRAM),
        *("--listen", variant.bind, "--port", str(variant.port)),
        *("--engine", variant.engine_url),
    )
    folder = files("lockstep").joinpath("onhost")
    contents = {
        "argv": start,
        "tools": tools,
        "modules": [folder.joinpath(name).read_text(encoding="utf-8") for name in _MODULES],
    }
    text = render(
        "systemd/roles.service.j2",
        variant=variant,
        description=f"{variant.name}: merges messages of one role in a row",
        user=settings.service_user,
        generation=digest(contents, 16),
        start=start,
        loopback=_is_loopback(variant.bind),
    )
    return ManagedFile(unit_path(variant.roles_unit), text, check="unit", stage="services")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
