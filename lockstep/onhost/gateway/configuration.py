"""Configuration of this host's gateway, as the deploy writes it to gateway.json.

Standard library only: the deploy writes these dataclasses, the gateway reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lockstep.onhost.core import config

#: Headers between two gateways: the person that the first gateway authenticated.
PEER_PERSON, PEER_ROLE = "x-lockstep-person", "x-lockstep-role"
PEER_HEADERS = (PEER_PERSON.encode(), PEER_ROLE.encode())
#: Name of the systemd credential with the key of this host's open ports.
API_KEY_CREDENTIAL = "api-key"
TLS_SOCKET = "/run/lockstep-gateway/tls.sock"  #: The Unix socket of the `tls` listener.
#: Wildcard addresses: all addresses of this host.
ANYWHERE = ("0.0.0.0", "::")

#: Limit of bodies in memory at once, as a multiple of the largest one.
BODIES = 8

Kind = Literal["local", "open", "tls", "peers", "model"]


@dataclass(frozen=True)
class ListenAddress:
    """One listener of the gateway."""

    #: Clients of the listener: `local` this host, `open` other machines with a key, `tls` the same
    #: through Caddy, `peers` other gateways, `model` clients of one model's own port.
    kind: Kind
    address: str  #: The IP address to listen at, or the path of a Unix socket (`tls`).
    port: int = 0  #: The TCP port; 0 for a Unix socket.
    #: For `model` listeners: the names that answer here, the fallback after the model.
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class PeerGateway:
    """The gateway of another host: its name in the inventory, and its `peers` listener."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Limits:
    """Limits of request bodies and of running requests.

    A body has at most `body_mib` MiB. `streams` requests for models and watchers of the page may be
    under way at once, and `streams_per_key` of one key among these.
    """

    body_mib: int = 64
    streams: int = 2048
    streams_per_key: int = 32


@dataclass(frozen=True)
class WebUiAddress:
    """The address of Open WebUI."""

    port: int
    #: Whether only this host can reach it.
    loopback: bool = True


@dataclass(frozen=True)
class GatewayConfiguration:
    """Configuration of one host's gateway."""

    host: str  #: This host's name in the inventory.
    #: Every listener. If one has a wildcard address ("0.0.0.0", "::"), others of the same port open
    #: no socket of their own: the address that a client connected to tells them apart. Only that of
    #: peers always has its own, because it speaks TLS.
    listeners: tuple[ListenAddress, ...]
    #: Names and addresses of this host that are valid as `Host` at the local listener.
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()  #: Origins whose web pages may ask, with a key.
    peers: tuple[PeerGateway, ...] = ()  #: Gateways of other hosts to ask as well.
    local_keys: bool = False  #: Whether the local listener requires a key.
    swap_on_request: bool = False  #: Whether a request for a cold model starts a switch.
    #: Seconds for which a model stays hot before a request may replace it.
    least_hot_s: float = 120.0
    queue: int = 32  #: Limit of requests that wait for a switch.
    #: Seconds for which a model without requests stays hot; None for ever.
    ttl_s: float | None = None
    keepalive_s: float = 15.0  #: Seconds between two comments while a stream has not begun.
    limits: Limits = Limits()
    #: URL of Prometheus on this host, without a path; None if it has none.
    prometheus: str | None = None
    webui: WebUiAddress | None = None  #: For the page's link; None if there is no Open WebUI.

    @property
    def listeners_with_socket(self) -> tuple[ListenAddress, ...]:
        """Listeners with a socket of their own; a wildcard address covers its whole port."""
        return tuple(
            listener
            for listener in self.listeners
            if listener.kind == "peers"
            or listener.address in ANYWHERE
            or listener.port not in self._wide_ports
        )

    @property
    def shares_port(self) -> bool:
        """True where peers have a socket at a port whose other addresses belong to another one."""
        return any(
            listener.kind == "peers" and listener.port in self._wide_ports
            for listener in self.listeners
        )

    @property
    def _wide_ports(self) -> set[int]:
        return {listener.port for listener in self.listeners if listener.address in ANYWHERE}


def load(path: Path) -> GatewayConfiguration:
    """Read gateway.json.

    Raises:
        errors.Problem: Wrong use; names the file, the key and the value found.
    """
    return config.read_dataclass(GatewayConfiguration, path)
