"""The unit of the proxy before an engine that refuses repeated roles, or that is open to others.

Such an engine listens on a loopback port of its own; the proxy has the port of the API, merges
messages of one role, and asks for the API key where other machines can reach the port. The engines'
own keys would not do: vLLM 0.32 asks for one on /v1 and three more prefixes only (`/invocations`
generates without), SGLang 0.5.23 takes it on its command line and logs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.files.managed_file import API_KEY, TOOLS_VENV, ManagedFile, command
from lockstep.files.programs import closure
from lockstep.inventory.bound_targets import PROXY_TOOLS
from lockstep.inventory.settings import Settings
from lockstep.lock.packages import tool_requirements
from lockstep.lock.pins import Pins
from lockstep.units.model_units import unit_path
from lockstep.units.restart_key import keyed
from lockstep.units.variants import Variant


def proxy_units(
    settings: Settings, variants: Sequence[Variant], pins: Pins
) -> tuple[ManagedFile, ...]:
    """One unit per variant that needs the proxy.

    Raises:
        ResolveError: ``pins`` holds no version of a package that the proxy imports.
    """
    proxied = [variant for variant in variants if variant.proxy_unit]
    if not proxied:
        return ()
    exact = tool_requirements(settings, pins)
    tools = {name: exact[name] for name in PROXY_TOOLS}
    return tuple(_unit(settings, variant, tools) for variant in proxied)


def _unit(settings: Settings, variant: Variant, tools: Mapping[str, str]) -> ManagedFile:
    assert variant.proxy_unit is not None
    start = (
        *command("roles-proxy", python=f"{TOOLS_VENV}/bin/python"),
        *("--listen", variant.target.data.bind, "--port", str(variant.target.port)),
        *("--engine", variant.engine_url),
        *(("--merge",) if variant.recipe.needs_roles_proxy else ()),
        *(("--key",) if variant.target.open else ()),
    )
    contents = {"tools": tools, "modules": closure("access.roles_proxy")}
    text = keyed(
        "units/proxy.service.j2",
        contents=contents,
        variant=variant,
        description=f"{variant.name}: {_purpose(variant)}",
        start=start,
        key=API_KEY if variant.target.open else None,
    )
    return ManagedFile(unit_path(variant.proxy_unit), text, check="unit", stage="services")


def _purpose(variant: Variant) -> str:
    merges, asks = "merges messages of one role in a row", "asks for the API key"
    if variant.recipe.needs_roles_proxy:
        return f"{merges}, {asks}" if variant.target.open else merges
    return asks
