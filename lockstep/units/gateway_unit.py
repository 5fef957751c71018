"""The gateway: its configuration, page and units, and the socket where it asks for a switch.

systemd has its ports and keeps them open while it restarts: any account may open a port above 1023,
and the owner of such a port reads the keys that come. The process has no right but to listen. Where
other machines reach it, systemd hands it the keys that it compares with.
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
    TOOLS_VENV,
    ManagedFile,
    command,
    peer_identity,
    unit_file,
)
from lockstep.files.programs import modules_with_imports
from lockstep.files.templating import render_template
from lockstep.inventory.bound_models import GATEWAY_TOOLS, LOOPBACK
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.packages import tool_requirements
from lockstep.lock.pins import Pins
from lockstep.onhost.__main__ import MODULES
from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import address_text
from lockstep.onhost.gateway import configuration
from lockstep.onhost.gateway.configuration import BODIES
from lockstep.onhost.systemd.outdated_units import GATEWAY_SOCKET
from lockstep.units.model_variants import Variant
from lockstep.units.models_json import models_file
from lockstep.units.restart_key import with_restart_key

PAGE = f"{CONFIGURATION}/gateway.html"
SOCKET = f"{GATEWAY_SWITCH}.socket"
#: Units that start at boot: the sockets first, for the gateway asks at one and has the other.
UNITS = (SOCKET, GATEWAY_SOCKET, GATEWAY_UNIT)
#: Memory of a gateway whose connections are all taken, without the bodies of requests, MiB: with
#: 1,000 streams it took 109 MB (`make bench`, 2026-11-24), and there may be 2,048.
_OVERHEAD_MIB = 512
#: Memory for a body of plain text, as a multiple of its bytes: its text, the parsed values and the
#: engine's request, and while it is read once more (measured 2026-11-26: 3.0, 4.0 at most).
_OF_A_BODY = 4


def local_url(settings: Settings) -> str:
    """Return the gateway's address for this host itself, without a path."""
    return address_text.url(LOOPBACK, settings.gateway.port)


def open_url(settings: Settings, name: str) -> str | None:
    """Return the gateway's address for other machines, without a path; None where there is none.

    Args:
        settings: The host's data.
        name: The host's name for other machines.
    """
    gateway = settings.gateway
    if not gateway.open:
        return None
    if gateway.plain:
        return address_text.url(_reachable_name(gateway.bind, name), gateway.open_port)
    # A certificate has a name, seldom an address.
    return address_text.url(name, gateway.open_port, "https")


def chat_url(settings: Settings, name: str) -> str | None:
    """Return the address of Open WebUI, without a path; None where the host has none.

    Args:
        settings: The host's data.
        name: The host's name for other machines.
    """
    webui = settings.webui
    return (
        address_text.url(_reachable_name(webui.bind, name), webui.port) if webui.enabled else None
    )


def _reachable_name(bind: str, name: str) -> str:
    """Return the name of a listener at ``bind`` for others: ``name`` where it is every address."""
    return name if bind in configuration.ANYWHERE else bind


def gateway_files(
    settings: Settings,
    variants: Sequence[Variant],
    pins: Pins,
    peers: Sequence[configuration.PeerGateway] = (),
) -> tuple[ManagedFile, ...]:
    """Return all files that the deploy writes for the gateway, without keys of people.

    Raises:
        ResolveError: ``pins`` holds no version of a package that the gateway imports.
    """
    document = gateway_configuration(settings, variants, peers)
    text = json.dumps(asdict(document), indent=2) + "\n"
    credentials = _credentials(settings.name, variants, peers)
    exact = tool_requirements(settings, pins)
    unit = with_restart_key(
        "units/gateway.service.j2",
        # The page and the keys are read at each request, so they are not among the contents.
        contents={
            "configuration": text,
            "models": models_file(settings, variants).text,
            "tools": {name: exact[name] for name in GATEWAY_TOOLS},
            "modules": modules_with_imports(MODULES["gateway"]),
        },
        account=GATEWAY_ACCOUNT,
        socket=SOCKET,
        listener=GATEWAY_SOCKET,
        memory_mib=_OVERHEAD_MIB + _OF_A_BODY * BODIES * document.limits.body_mib,
        start=command("gateway", python=f"{TOOLS_VENV}/bin/python"),
        credentials=credentials,
        loopback=settings.monitoring.bind == "loopback" and _is_of_loopback(document),
    )
    ports = render_template(
        "units/gateway.socket.j2",
        listeners=[_listen_stream(listener) for listener in document.listeners_with_socket],
        account=GATEWAY_ACCOUNT,
        shares_port=document.shares_port,
        loopback=_is_of_loopback(document),
    )
    socket = render_template("units/gateway-switch.socket.j2", account=GATEWAY_ACCOUNT)
    switch = render_template("units/gateway-switch@.service.j2", start=command("gateway-switch"))
    return (
        ManagedFile(GATEWAY_CONFIGURATION, text, check="json", stage="gateway"),
        ManagedFile(PAGE, render_template("page/gateway.html.j2"), stage="gateway"),
        unit_file(SOCKET, socket, "gateway"),
        unit_file(GATEWAY_SOCKET, ports, "gateway"),
        unit_file(f"{GATEWAY_SWITCH}@.service", switch, "gateway"),
        unit_file(GATEWAY_UNIT, unit, "gateway"),
    )


def gateway_configuration(
    settings: Settings, variants: Sequence[Variant], peers: Sequence[configuration.PeerGateway] = ()
) -> configuration.GatewayConfiguration:
    """Return the content of gateway.json; the arguments are those of `gateway_files`."""
    gateway, webui = settings.gateway, settings.webui
    return configuration.GatewayConfiguration(
        host=settings.name,
        listeners=tuple(_listeners(settings, variants, peers)),
        names=_own_host_names(settings),
        origins=gateway.origins,
        peers=tuple(peers),
        local_keys=gateway.local_keys,
        swap_on_request=gateway.swap_on_request,
        least_hot_s=gateway.least_hot_s,
        queue=gateway.queue,
        ttl_s=gateway.ttl_s,
        keepalive_s=gateway.keepalive_s,
        limits=configuration.Limits(**asdict(gateway.limits)),
        prometheus=settings.prometheus_url,
        webui=configuration.WebUiAddress(webui.port, is_loopback(webui.bind))
        if webui.enabled
        else None,
    )


def _listeners(
    settings: Settings, variants: Sequence[Variant], peers: Sequence[configuration.PeerGateway]
) -> Iterator[configuration.ListenAddress]:
    gateway = settings.gateway
    yield configuration.ListenAddress("local", LOOPBACK, gateway.port)
    if gateway.tls is not None:
        yield configuration.ListenAddress("tls", configuration.TLS_SOCKET)
    elif gateway.open:
        yield configuration.ListenAddress("open", gateway.bind, gateway.port)
    if peers:
        yield configuration.ListenAddress("peers", str(settings.fabric_address), gateway.port)
    for model in dict.fromkeys(variant.model.name for variant in variants):
        forms = [variant for variant in variants if variant.model.name == model]
        bound_model = forms[0].model
        if bound_model.has_listener:
            address = LOOPBACK if bound_model.data.bind == "localhost" else bound_model.data.bind
            names = tuple(variant.name for variant in forms)
            yield configuration.ListenAddress("model", address, bound_model.port, names)


def _is_of_loopback(gateway: configuration.GatewayConfiguration) -> bool:
    """Tell whether only this host reaches the listeners, but for the TLS server before them."""
    return all(
        listener.kind == "tls" or is_loopback(listener.address) for listener in gateway.listeners
    )


def _listen_stream(listener: configuration.ListenAddress) -> str:
    """Return a listener in the form of ListenStream= (systemd.socket(5))."""
    return (
        address_text.address_with_port(listener.address, listener.port)
        if listener.port
        else listener.address
    )


def _own_host_names(settings: Settings) -> tuple[str, ...]:
    """Return the host's names for those on it, beside the names of loopback."""
    fabric = (str(interface.ip) for interface in settings.fabric.addresses.values())
    bind = settings.gateway.bind
    own = () if bind in ("0.0.0.0", "::") or is_loopback(bind) else (bind,)
    interface = (settings.name, settings.fabric_address, *fabric, *own)
    return tuple(dict.fromkeys(name for name in interface if name))


def _credentials(
    host: str, variants: Sequence[Variant], peers: Sequence[configuration.PeerGateway]
) -> dict[str, str]:
    """Return name of a systemd credential → file on the host."""
    needs_key = any(variant.model.open for variant in variants)
    own_key = {configuration.API_KEY_CREDENTIAL: API_KEY} if needs_key else {}
    role = peer_tls.GATEWAY
    return own_key | ({peer_tls.credential_name(role): peer_identity(role, host)} if peers else {})
