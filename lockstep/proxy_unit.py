"""The unit of the proxy before an engine that refuses repeated roles, or that is open to others.

Such an engine listens on a loopback port of its own; the proxy has the port of the API, merges
messages of one role, and asks for the API key where other machines can reach the port. The engines'
own keys would not do: vLLM 0.32 asks for one on /v1 and three more prefixes only (`/invocations`
generates without), SGLang 0.5.23 takes it on its command line and logs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from lockstep.engine_id import digest
from lockstep.errors import InventoryError
from lockstep.managed import API_KEY, PROGRAMS, TOOLS_VENV, ManagedFile
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
_MODULES = ("api_key.py", "roles.py", "roles_proxy.py")


def proxy_units(
    settings: Settings, variants: Sequence[Variant], pins: Pins
) -> tuple[ManagedFile, ...]:
    """One unit per variant that needs the proxy.

    Raises:
        InventoryError: `tools` lacks a package that the proxy imports.
        ResolveError: ``pins`` holds no version of one.
    """
    proxied = [variant for variant in variants if variant.proxy_unit]
    if not proxied:
        return ()
    missing = [name for name in NEEDS if name not in settings.tools]
    if missing:
        raise InventoryError(
            f"the proxy before the engine of target {proxied[0].name} needs more tools",
            where=settings.name,
            found=f"tools without {', '.join(missing)}",
            remedy="Keep the entries of tools in group_data/all.py.",
        )
    exact = tool_requirements(settings, pins)
    tools = {name: exact[name] for name in NEEDS}
    return tuple(_unit(settings, variant, tools) for variant in proxied)


def _unit(settings: Settings, variant: Variant, tools: Mapping[str, str]) -> ManagedFile:
    assert variant.proxy_unit is not None
    start = (
        *(f"{TOOLS_VENV}/bin/python", PROGRAM),
        *("--listen", variant.bind, "--port", str(variant.port)),
        *("--engine", variant.engine_url),
        *(("--merge",) if variant.recipe.needs_roles_proxy else ()),
        *(("--key",) if variant.open else ()),
    )
    folder = files("lockstep").joinpath("onhost")
    contents = {
        "argv": start,
        "tools": tools,
        "modules": [folder.joinpath(name).read_text(encoding="utf-8") for name in _MODULES],
    }
    text = render(
        "systemd/proxy.service.j2",
        variant=variant,
        description=f"{variant.name}: {_purpose(variant)}",
        user=settings.service_user,
        generation=digest(contents, 16),
        start=start,
        key=API_KEY if variant.open else None,
    )
    return ManagedFile(unit_path(variant.proxy_unit), text, check="unit", stage="services")


def _purpose(variant: Variant) -> str:
    merges, asks = "merges messages of one role in a row", "asks for the API key"
    if variant.recipe.needs_roles_proxy:
        return f"{merges}, {asks}" if variant.open else merges
    return asks
