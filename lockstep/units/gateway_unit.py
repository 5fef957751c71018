"""The gateway: its configuration, its page, its units, and the socket where it asks for a switch.

Its ports are systemd's, which keeps them open while it restarts: any account may open a port above
1023, and who has one of these reads the keys that come. The process has no right but to listen.
Where other machines reach it, systemd hands it the keys that it compares with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    GATEWAY_ACCOUNT,
    GATEWAY_CONFIGURATION,
    GATEWAY_SWITCH,
    GATEWAY_UNIT,
    PEER_KEY,
    TOOLS_VENV,
    ManagedFile,
    command,
    unit_file,
)
from lockstep.files.programs import closure
from lockstep.files.templating import render
from lockstep.inventory.bound_targets import GATEWAY_TOOLS, LOOPBACK
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.packages import tool_requirements
from lockstep.lock.pins import Pins
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.gateway import configuration
from lockstep.onhost.gateway.configuration import BODIES
from lockstep.onhost.systemd.generation import GATEWAY_SOCKET
from lockstep.units.restart_key import keyed
from lockstep.units.targets_json import targets_file
from lockstep.units.variants import Variant

PAGE = f"{CONFIGURATION}/gateway.html"
SOCKET = f"{GATEWAY_SWITCH}.socket"
#: Units that start at boot: the sockets first, for the gateway asks at one and has the other.
UNITS = (SOCKET, GATEWAY_SOCKET, GATEWAY_UNIT)
#: Memory of a gateway whose connections are all taken, without the bodies of requests, MiB: with
#: 1,000 streams it took 109 MB (`make bench`, 2026-11-24), and there may be 2,048.
_OVERHEAD_MIB = 512
#: Memory of a body of plain text, as a multiple of its bytes: its text, the values read of it and
#: what the engine is sent, and while it is read once more (measured 2026-11-26: 3.0, 4.0 at most).
_OF_A_BODY = 4


def local_url(settings: Settings) -> str:
    """Where this host itself asks the gateway, without a path."""
    return f"http://{LOOPBACK}:{settings.gateway.port}"


def open_url(settings: Settings, name: str) -> str | None:
    """Where other machines ask it, without a path; None where they cannot.

    Args:
        settings: The host's data.
        name: What other machines call the host.
    """
    gateway = settings.gateway
    if not gateway.open:
        return None
    if gateway.plain:
        return f"http://{in_url(gateway.bind, name)}:{gateway.open_port}"
    # A certificate has a name, seldom an address.
    return f"https://{in_url(name, name)}:{gateway.open_port}"


def chat_url(settings: Settings, name: str) -> str | None:
    """Where Open WebUI answers, without a path; None where the host has none.

    Args:
        settings: The host's data.
        name: What other machines call the host.
    """
    webui = settings.webui
    return f"http://{in_url(webui.bind, name)}:{webui.port}" if webui.enabled else None


def in_url(bind: str, name: str) -> str:
    """The host of a URL of what listens at ``bind``: ``name`` where that is every address."""
    host = name if bind in configuration.ANYWHERE else bind
    return f"[{host}]" if ":" in host else host


def gateway_files(
    settings: Settings,
    variants: Sequence[Variant],
    pins: Pins,
    peers: Sequence[configuration.Peer] = (),
) -> tuple[ManagedFile, ...]:
    """Everything that the deploy writes for the gateway; keys of people are not among it.

    Raises:
        ResolveError: ``pins`` holds no version of a package that the gateway imports.
    """
    said = configured(settings, variants, peers)
    text = json.dumps(asdict(said), indent=2) + "\n"
    credentials = _credentials(variants, peers)
    exact = tool_requirements(settings, pins)
    unit = keyed(
        "units/gateway.service.j2",
        # The page and the keys are read as they are asked for.
        contents={
            "configuration": text,
            "targets": targets_file(settings, variants).text,
            "tools": {name: exact[name] for name in GATEWAY_TOOLS},
            "modules": closure(MODULES["gateway"]),
        },
        account=GATEWAY_ACCOUNT,
        socket=SOCKET,
        listener=GATEWAY_SOCKET,
        memory_mib=_OVERHEAD_MIB + _OF_A_BODY * BODIES * said.limits.body_mib,
        start=command("gateway", python=f"{TOOLS_VENV}/bin/python"),
        credentials=credentials,
        loopback=settings.monitoring.bind == "loopback" and _is_of_loopback(said),
    )
    ports = render(
        "units/gateway.socket.j2",
        doors=[_stream(door) for door in said.listening],
        account=GATEWAY_ACCOUNT,
        loopback=_is_of_loopback(said),
    )
    socket = render("units/gateway-switch.socket.j2", account=GATEWAY_ACCOUNT)
    switch = render("units/gateway-switch@.service.j2", start=command("gateway-switch"))
    return (
        ManagedFile(GATEWAY_CONFIGURATION, text, check="json", stage="gateway"),
        ManagedFile(PAGE, render("page/gateway.html.j2"), stage="gateway"),
        unit_file(SOCKET, socket, "gateway"),
        unit_file(GATEWAY_SOCKET, ports, "gateway"),
        unit_file(f"{GATEWAY_SWITCH}@.service", switch, "gateway"),
        unit_file(GATEWAY_UNIT, unit, "gateway"),
    )


def configured(
    settings: Settings, variants: Sequence[Variant], peers: Sequence[configuration.Peer] = ()
) -> configuration.Gateway:
    """What the gateway is told, as gateway.json holds it; arguments as for `gateway_files`."""
    gateway, webui = settings.gateway, settings.webui
    return configuration.Gateway(
        host=settings.name,
        doors=tuple(_doors(settings, variants, peers)),
        names=_names(settings),
        models={
            variant.name: configuration.Model(
                aliases=variant.target.data.aliases if variant.name == variant.target.name else (),
                evens=variant.evens,
                context=variant.context,
            )
            for variant in variants
        },
        peers=tuple(peers),
        local_keys=gateway.local_keys,
        swap_on_request=gateway.swap_on_request,
        least_hot_s=gateway.least_hot_s,
        queue=gateway.queue,
        ttl_s=gateway.ttl_s,
        keepalive_s=gateway.keepalive_s,
        limits=configuration.Limits(**asdict(gateway.limits)),
        prometheus=settings.prometheus_url,
        webui=configuration.WebUi(webui.port, is_loopback(webui.bind)) if webui.enabled else None,
    )


def _doors(
    settings: Settings, variants: Sequence[Variant], peers: Sequence[configuration.Peer]
) -> Iterator[configuration.Door]:
    gateway = settings.gateway
    yield configuration.Door("local", LOOPBACK, gateway.port)
    if gateway.tls is not None:
        yield configuration.Door("tls", configuration.TLS_SOCKET)
    elif gateway.open:
        yield configuration.Door("open", gateway.bind, gateway.port)
    if peers:
        yield configuration.Door("peers", str(settings.fabric_address), gateway.port)
    for target in dict.fromkeys(variant.target.name for variant in variants):
        forms = [variant for variant in variants if variant.target.name == target]
        here = forms[0].target
        if here.door:
            address = LOOPBACK if here.data.bind == "localhost" else here.data.bind
            names = tuple(variant.name for variant in forms)
            yield configuration.Door("target", address, here.port, names)


def _is_of_loopback(gateway: configuration.Gateway) -> bool:
    """Whether nobody but this host can come to a door, but by the TLS server before it."""
    return all(door.kind == "tls" or is_loopback(door.address) for door in gateway.doors)


def _stream(door: configuration.Door) -> str:
    """A door as ListenStream= has it (systemd.socket(5))."""
    if not door.port:
        return door.address
    return f"[{door.address}]:{door.port}" if ":" in door.address else f"{door.address}:{door.port}"


def _names(settings: Settings) -> tuple[str, ...]:
    """What this host is called by those on it, beside the names of loopback."""
    fabric = (str(found.ip) for found in settings.fabric.addresses.values())
    bind = settings.gateway.bind
    own = () if bind in ("0.0.0.0", "::") or is_loopback(bind) else (bind,)
    found = (settings.name, settings.fabric_address, *fabric, *own)
    return tuple(dict.fromkeys(name for name in found if name))


def _credentials(
    variants: Sequence[Variant], peers: Sequence[configuration.Peer]
) -> dict[str, str]:
    """Name of a systemd credential → file on the host."""
    asked = any(variant.target.open for variant in variants)
    host = {configuration.API_KEY_CREDENTIAL: API_KEY} if asked else {}
    return host | ({configuration.PEER_KEY_CREDENTIAL: PEER_KEY} if peers else {})
