"""What the lab's supervisor needs to know of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Debian packages that preparing and serving the content needs on the machine that runs the lab.
DEBIAN_PACKAGES = ("git", "skopeo", "docker-registry", "mmdebstrap")

WEB_PORT = 3141
GIT_PORT = 9418
REGISTRY_PORT = 5000
HUB_PORT = 8090
PROXY_PORT = 3128


@dataclass(frozen=True)
class Service:
    """One server to run inside the lab's network namespace.

    ``ready_path`` is an HTTP path that answers 200 once it serves; ``None`` means that an open
    port is enough. Its output belongs in ``<state>/log/<log>``.
    """

    name: str
    argv: tuple[str, ...]
    port: int
    ready_path: str | None
    log: str


def state_folder(state: Path, service: str) -> Path:
    """The folder in which a service keeps what it changes while it runs."""
    folder = state / "services" / service
    folder.mkdir(parents=True, exist_ok=True)
    return folder
