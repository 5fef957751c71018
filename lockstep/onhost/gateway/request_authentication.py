"""Authentication of requests: the person behind each one, and the paths open to them."""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.configuration import (
    API_KEY_CREDENTIAL,
    GatewayConfiguration,
    ListenAddress,
)
from lockstep.onhost.gateway.keys import Keys, Person
from lockstep.onhost.gateway.peer_gateways import Peers
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal, Headers

LOCAL = Person(keys.LOCAL, "use")  #: A client on the host itself, without a key.
HOST_KEY = Person(keys.HOST_KEY, "use")  #: A client with the key of this host's open ports.
#: Headers that carry a key; engines and other gateways never see them.
KEY_HEADERS = (b"authorization", b"x-api-key")
# It tells no more than green or not, and load balancers ask without a key.
_FREE = b"/health"
# Engines have further paths for their operators: weights, profiles, shutdown.
_SERVED = (b"/v1/", b"/metrics")
# Behind a proxy, the peer address is the proxy's and proves nothing about the client.
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
# The gateway judges these headers. If one came twice, an engine could read the other value.
_ONCE = (b"host", b"origin", b"sec-fetch-site", b"content-type")
_NO_KEY = "a key is needed: Authorization: Bearer KEY. Your operator makes one with `lockstep key`"


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request."""

    person: Person  #: The person that requests are counted for.
    #: Whether the limit per key applies; it does not to local clients without a key.
    is_limited: bool = True
    hops: int = 0  #: Number of gateways that forwarded the request.


class Access:
    """Authentication by listener and headers.

    `host_key` is the key of this host's open ports; None if it has none.
    """

    def __init__(
        self, gateway: GatewayConfiguration, people: Keys, peers: Peers, host_key: str | None
    ) -> None:
        self._gateway = gateway
        self._people = people
        self._peers = peers
        self._host_key = keys.key_digest(host_key.encode()) if host_key else None
        self._names = {name.lower() for name in ("localhost", gateway.host, *gateway.names)}

    def caller(self, listener: ListenAddress, headers: Headers) -> Caller:
        """Authenticate a request at any listener but a model's own.

        Raises:
            GatewayRefusal: No valid key, or a peer or web page that may not ask here.
        """
        _refuse_repeated_headers(headers)
        if listener.kind == "peers":
            return self._forwarded_caller(headers)
        if person := self._people.person_of(headers):
            return Caller(person)
        if (
            listener.kind != "local"
            or self._gateway.local_keys
            or keys.has_key_of_our_form(headers)
        ):
            raise _unauthorised_refusal()
        if any(name in _FORWARDED for name, _ in headers):
            raise _unauthorised_refusal()
        self._refuse_cross_site_requests(headers)
        return Caller(LOCAL, is_limited=False)

    def caller_at_model_port(
        self, listener: ListenAddress, method: str, raw_path: bytes, headers: Headers
    ) -> Caller:
        """Authenticate a request at a model's own port.

        Raises:
            GatewayRefusal: No valid key, a path that is closed, or a web page that may not ask.
        """
        _refuse_repeated_headers(headers)
        person = self._people.person_of(headers)
        if person is None and self._host_key and is_key_in_headers(headers, self._host_key):
            person = HOST_KEY
        if is_loopback(listener.address):
            # A proxy on this host may stand before this port, which knows no persons.
            if person is None:
                self._refuse_cross_site_requests(headers)
            return Caller(LOCAL, is_limited=False)
        bodies = (b"content-length", b"transfer-encoding")
        if raw_path == _FREE and method in ("GET", "HEAD") and not dict(headers).keys() & bodies:
            # Clients without a key share the slots of one key, and send no body to wait for.
            return Caller(LOCAL)
        if person is None:
            raise _unauthorised_refusal()
        if not raw_path.startswith(_SERVED) or b"/." in raw_path:
            raise GatewayRefusal(404, "this port serves /v1/, /metrics and /health", "path")
        return Caller(person)

    def _forwarded_caller(self, headers: Headers) -> Caller:
        person = self._peers.caller_of(headers)
        if person is None:
            message = "this port is for other gateways, which name the person"
            raise GatewayRefusal(400, message, "header", close=True)
        # A client without a key on the first gateway's own host has no limit here either.
        return Caller(person, is_limited=person != LOCAL, hops=1)

    def _refuse_cross_site_requests(self, headers: Headers) -> None:
        """Refuse requests that a web page made a local browser send (DNS rebinding, cross-site)."""
        headers_found = dict(headers)
        host = headers_found.get(b"host", b"").decode("latin-1")
        if not self._is_own_host_name(host):
            raise _foreign_page_refusal("Host is none of this host's names")
        origin = headers_found.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            raise _foreign_page_refusal("Origin is another site")
        if headers_found.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise _foreign_page_refusal("Sec-Fetch-Site is another site")

    def _is_own_host_name(self, host: str) -> bool:
        name, port = host.rpartition(":")[::2] if not host.endswith("]") else (host, "")
        name = name if name and port.isdecimal() else host
        name = name.strip("[]").lower().rstrip(".")
        return name in self._names or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Tell whether an address can only be reached from this host."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_key_in_headers(headers: Headers, digest: str) -> bool:
    """Tell whether a request carries the key of a digest, in either header form."""
    # Digests have one length, so the time of the comparison reveals nothing about the key.
    return any(
        [hmac.compare_digest(keys.key_digest(key), digest) for key in keys.keys_in_headers(headers)]
    )


def open_port_key(gateway: GatewayConfiguration) -> str | None:
    """Return the key of this host's open ports, as systemd hands it over.

    Returns:
        The key, or None if no port needs one.

    Raises:
        errors.Problem: The key is missing. A port without its key must not open.
    """
    if not any(
        listener.kind == "model" and not is_loopback(listener.address)
        for listener in gateway.listeners
    ):
        return None
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise errors.Problem("no API key: expected LoadCredential= in the unit. Deploy again")
    path = Path(folder) / API_KEY_CREDENTIAL
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Problem(f"no API key: {path}: {error.strerror}. Deploy again") from error
    if not key:
        raise errors.Problem(f"no API key: {path} is empty. Remove the key's file and deploy again")
    return key


def _refuse_repeated_headers(headers: Headers) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise GatewayRefusal(
                400, f"the header {name.decode()} is there twice", "header", close=True
            )


def _unauthorised_refusal() -> GatewayRefusal:
    # Closing also avoids waiting for the rest of a stranger's body.
    return GatewayRefusal(401, _NO_KEY, "key", close=True)


def _foreign_page_refusal(why: str) -> GatewayRefusal:
    message = f"{why}: without a key only programs of this host may ask here"
    return GatewayRefusal(403, message, "foreign", close=True)
