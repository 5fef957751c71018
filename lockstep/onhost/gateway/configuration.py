"""What the deploy says to the gateway of this host, as gateway.json holds it.

Standard library only: the deploy writes these dataclasses, the gateway reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lockstep.onhost.core import config
from lockstep.onhost.core.kind import Shape

#: Headers between two gateways: the key, and whom the first one found.
PEER_KEY, PEER_PERSON, PEER_ROLE = "x-lockstep-peer", "x-lockstep-person", "x-lockstep-role"
PEER_HEADERS = (PEER_KEY.encode(), PEER_PERSON.encode(), PEER_ROLE.encode())
#: Names of systemd credentials: the key of this host's open ports, and the gateways' own.
API_KEY_CREDENTIAL, PEER_KEY_CREDENTIAL = "api-key", "peer-key"
TLS_SOCKET = "/run/lockstep-gateway/tls.sock"  #: The Unix socket of a `tls` door.
#: Addresses that stand for all of this host.
ANYWHERE = ("0.0.0.0", "::")

#: Bodies that are held at once, as a multiple of the largest one.
BODIES = 8

Kind = Literal["local", "open", "tls", "peers", "target"]


@dataclass(frozen=True)
class Door:
    """One listener."""

    #: Who comes in here: `local` this host, `open` other machines with a key, `tls` the same by
    #: Caddy, `peers` other gateways, `target` clients of one target's own port.
    kind: Kind
    address: str  #: The IP address to listen at, or the path of a Unix socket (`tls`).
    port: int = 0  #: The TCP port; 0 for a Unix socket.
    #: Of a `target` door: the names that answer here, the fallback after the target.
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peer:
    """The gateway of another host: the name in the inventory, and its `peers` door."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Model:
    """What targets.json does not say about a target."""

    aliases: tuple[str, ...] = ()  #: Further names that clients may ask for.
    evens: tuple[Shape, ...] = ()  #: Shapes of conversations that are evened out for it.
    context: int | None = None  #: Tokens of one request with its answer; None: not known.


@dataclass(frozen=True)
class Limits:
    """Bounds: one request's body (MiB), requests at engines at once, and of one key of these."""

    body_mib: int = 64
    streams: int = 2048
    streams_per_key: int = 32


@dataclass(frozen=True)
class WebUi:
    """Where Open WebUI listens."""

    port: int
    #: Whether nobody but this host can come there.
    loopback: bool = True


@dataclass(frozen=True)
class Gateway:
    """The gateway of one host."""

    host: str  #: This host's name in the inventory.
    #: Every listener. Where one is at all addresses ("0.0.0.0", "::"), those of the same port open
    #: no socket of their own: the address that a client came to tells them apart.
    doors: tuple[Door, ...]
    #: Names and addresses of this host that `Host` may have at the local door.
    names: tuple[str, ...] = ()
    #: By name of the target, fallbacks included.
    models: Mapping[str, Model] = field(default_factory=dict)
    origins: tuple[str, ...] = ()  #: Whose web pages may ask, with a key.
    peers: tuple[Peer, ...] = ()  #: Gateways of other hosts that are asked too.
    local_keys: bool = False  #: Whether the local door asks for a key.
    swap_on_request: bool = False  #: Whether a request for a cold target asks for a switch.
    #: How long a target stays hot before a request may take it away, seconds.
    least_hot_s: float = 120.0
    queue: int = 32  #: How many requests may wait for a switch.
    #: How long a target without requests stays hot, seconds; None: for ever.
    ttl_s: float | None = None
    keepalive_s: float = 15.0  #: Between two comments while a stream has not begun, seconds.
    limits: Limits = Limits()
    #: Where Prometheus on this host is asked, without a path; None: it has none.
    prometheus: str | None = None
    webui: WebUi | None = None  #: For the page's link; None: there is none.

    @property
    def listening(self) -> tuple[Door, ...]:
        """The doors that have a socket of their own: one at all addresses stands for its port."""
        wide = {door.port for door in self.doors if door.address in ANYWHERE}
        return tuple(
            door for door in self.doors if door.address in ANYWHERE or door.port not in wide
        )

    def model(self, target: str) -> Model:
        """What is said of a target; nothing special where nothing is."""
        return self.models.get(target, Model())


def load(path: Path) -> Gateway:
    """Read gateway.json. Problem (wrong use) names the file, the key and what was found."""
    return config.read(Gateway, path)
