"""Caddy before the gateway, for TLS to other machines: its configuration and unit."""

from __future__ import annotations

from lockstep.files.managed_file import CONFIGURATION, GATEWAY_ACCOUNT, ManagedFile, unit_file
from lockstep.files.templating import render_template
from lockstep.inventory.host import Authority, HostPlan
from lockstep.inventory.settings import Certificate
from lockstep.onhost.core import address_text
from lockstep.onhost.gateway.configuration import TLS_SOCKET
from lockstep.units.restart_key import with_restart_key

UNIT = "lockstep-tls.service"
PACKAGE = "caddy"
#: The account that its package makes.
ACCOUNT = "caddy"
#: The package's own unit, which would listen on port 80 as soon as it is installed.
PACKAGED_UNIT = "caddy.service"
CADDYFILE = f"{CONFIGURATION}/Caddyfile"
#: The authority's certificate, for everybody: phones and laptops install it.
ROOT = f"{CONFIGURATION}/authority.crt"
#: Chain and key of a certificate that a deploy brings, by their keys in `gateway.tls`; mode 0600.
GIVEN = {name: f"{CONFIGURATION}/secrets/gateway-tls-{name}.pem" for name in ("certificate", "key")}


def authority_path(name: str) -> str:
    """Return the path of the authority's key with its certificate on a host; mode 0600."""
    return f"{CONFIGURATION}/secrets/authority-{name}.pem"


def certificate_paths(tls: Certificate) -> dict[str, str]:
    """Return the paths on a host of the "certificate" (chain) and "key" of the owner's own."""
    if tls.given_files:
        return GIVEN
    return {"certificate": str(tls.certificate), "key": str(tls.key)}


def tls_files(plan: HostPlan) -> tuple[ManagedFile, ...]:
    """Return Caddy's configuration and its unit; () where there is no TLS."""
    gateway = plan.settings.gateway
    if gateway.tls is None:
        return ()
    own, tailscale = isinstance(gateway.tls, Certificate), gateway.tls == "tailscale"
    names = [name for name in plan.names if not tailscale or name.endswith(".ts.net")]
    caddyfile = render_template(
        "system/Caddyfile.j2",
        tls=None if own else gateway.tls,
        # A certificate of the owner's serves every name that it has.
        names=[""] if own else [address_text.host_in_url(name) for name in names],
        bind=gateway.bind,
        port=gateway.tls_port,
        socket=TLS_SOCKET,
        root=ROOT,
    )
    unit = with_restart_key(
        "units/tls.service.j2",
        contents={"caddyfile": caddyfile},
        tailscale=tailscale,
        group=GATEWAY_ACCOUNT,
        credentials=_credentials(gateway.tls, plan.authority),
        start=("/usr/bin/caddy", "run", "--adapter", "caddyfile", "--config", CADDYFILE),
    )
    return (
        ManagedFile(CADDYFILE, caddyfile, check="caddy", stage="gateway"),
        unit_file(UNIT, unit, "gateway"),
    )


def _credentials(tls: object, authority: Authority | None) -> dict[str, str]:
    """Return name of a systemd credential → file on the host."""
    if isinstance(tls, Certificate):
        return certificate_paths(tls)
    return {"authority": authority_path(authority.id)} if authority else {}
