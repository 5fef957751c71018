"""Who may ask what at which door."""

from __future__ import annotations

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.configuration import API_KEY_CREDENTIAL, Door, Gateway
from lockstep.onhost.gateway.keys import Keys, Person
from lockstep.onhost.gateway.peers import Peers
from lockstep.onhost.gateway.wire.answers import Headers, Refused

LOCAL = Person(keys.LOCAL, "use")  #: Who asks from the host itself, without a key.
HOST_KEY = Person(keys.HOST_KEY, "use")  #: Who asks with the key of this host's open ports.
#: Headers that carry a key; no engine, and no other gateway, sees one.
KEY_HEADERS = (b"authorization", b"x-api-key")
# Green or not is all that it says, and load balancers ask without a key.
_FREE = b"/health"
# Engines have further paths for whoever runs them: weights, profiles, shutdown.
_SERVED = (b"/v1/", b"/metrics")
# Who asks through a proxy is not who connects.
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
# Headers that are judged in the gateway: of two of them, others may read the other one.
_ONCE = (b"host", b"origin", b"sec-fetch-site", b"content-type")
_NO_KEY = "a key is needed: Authorization: Bearer KEY. Your operator makes one with `lockstep key`"


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    person: Person  #: Whom requests are counted for.
    #: Whether the bound of a key holds for it: not without a key, from this host.
    limited: bool = True
    hops: int = 0  #: Gateways that the request came through.


class Access:
    """Judges requests by their door and their headers.

    `host_key` is the key of this host's open ports; None: it has none.
    """

    def __init__(self, gateway: Gateway, people: Keys, peers: Peers, host_key: str | None) -> None:
        self._gateway = gateway
        self._people = people
        self._peers = peers
        self._host_key = keys.digest(host_key.encode()) if host_key else None
        self._names = {name.lower() for name in ("localhost", gateway.host, *gateway.names)}

    def caller(self, door: Door, headers: Headers) -> Caller:
        """Who asks at a door that is none of a target. Refused: nobody who may."""
        _refuse_repeated(headers)
        if door.kind == "peers":
            return self._other_gateway(headers)
        if person := self._people.who(headers):
            return Caller(person)
        if door.kind != "local" or self._gateway.local_keys or keys.claimed(headers):
            raise _unauthorised()
        if any(name in _FORWARDED for name, _ in headers):
            raise _unauthorised()
        self._only_from_here(headers)
        return Caller(LOCAL, limited=False)

    def caller_of_target(
        self, door: Door, method: str, raw_path: bytes, headers: Headers
    ) -> Caller:
        """Who asks at a target's own port. Refused: nobody who may, or a path that is closed."""
        _refuse_repeated(headers)
        if is_loopback(door.address):
            return Caller(LOCAL, limited=False)
        bodies = (b"content-length", b"transfer-encoding")
        if raw_path == _FREE and method in ("GET", "HEAD") and not dict(headers).keys() & bodies:
            # Strangers share the places of one key, and have no body that could be waited for.
            return Caller(LOCAL)
        person = self._people.who(headers)
        if person is None and self._host_key and is_key(headers, self._host_key):
            person = HOST_KEY
        if person is None:
            raise _unauthorised()
        if not raw_path.startswith(_SERVED) or b"/." in raw_path:
            raise Refused(404, "this port serves /v1/, /metrics and /health", "path")
        return Caller(person)

    def _other_gateway(self, headers: Headers) -> Caller:
        person = self._peers.who(headers)
        if person is None:
            said = "this port is for other gateways, which have its key"
            raise Refused(401, said, "key", close=True)
        # Who had no key there, at the first gateway's own host, has no bound here either.
        return Caller(person, limited=person != LOCAL, hops=1)

    def _only_from_here(self, headers: Headers) -> None:
        """Refuse what a web page made a browser of this host send (DNS rebinding, cross-site)."""
        found = dict(headers)
        host = found.get(b"host", b"").decode("latin-1")
        if not self._is_own(host):
            raise _foreign("Host is none of this host's names")
        origin = found.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            raise _foreign("Origin is another site")
        if found.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise _foreign("Sec-Fetch-Site is another site")

    def _is_own(self, host: str) -> bool:
        name, port = host.rpartition(":")[::2] if not host.endswith("]") else (host, "")
        name = name if name and port.isdecimal() else host
        name = name.strip("[]").lower().rstrip(".")
        return name in self._names or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Whether only this host itself reaches what listens at an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_key(headers: Headers, digest: str) -> bool:
    """Whether a request carries the key of a digest, in either form."""
    # Digests have one length, so the time that this takes says nothing about the key.
    return any([hmac.compare_digest(keys.digest(key), digest) for key in keys.given(headers)])


def host_key(gateway: Gateway) -> str | None:
    """The key of this host's open ports, as systemd hands it over; None: no port needs it.

    Problem where it is missing: a port without its key must not open.
    """
    if not any(door.kind == "target" and not is_loopback(door.address) for door in gateway.doors):
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


def _refuse_repeated(headers: Headers) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise Refused(400, f"the header {name.decode()} is there twice", "header", close=True)


def _unauthorised() -> Refused:
    # Nor is the rest of a stranger's body waited for.
    return Refused(401, _NO_KEY, "key", close=True)


def _foreign(why: str) -> Refused:
    said = f"{why}: without a key only programs of this host may ask here"
    return Refused(403, said, "foreign", close=True)
