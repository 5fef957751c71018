"""The description of a server for the lab's supervisor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Debian packages that the lab's machine needs to prepare and serve the content.
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


def advance(state: Path, service: str, content: Path, merge: Callable[[Path, Path], None]) -> Path:
    """Bring this lab's copy of a service's content up to this checkout and return the copy.

    ``merge(content, copy)`` adds new content and keeps the old. Like a real upstream, the lab goes
    on serving the commits, digests and revisions that somebody has pinned. ``merge`` runs again
    after an interruption, and not at all when the copy is up to date.
    """
    folder = state_folder(state, service)
    copy, mark = folder / "content", folder / "content-name"
    if not mark.exists() or mark.read_text() != content.name:
        copy.mkdir(exist_ok=True)
        merge(content, copy)
        mark.write_text(content.name)
    return copy
