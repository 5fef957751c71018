"""Container images: from the name that a recipe gives to the exact thing that a host pulls."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.inventory.settings import Sources
from lockstep.lock.pins import ImagePin, Pins, held

DEFAULT_REGISTRY = "docker.io"
# Other names of the default registry that Docker itself accepts in a reference.
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})

# Where Docker is given every image, on each host, while it takes it.
LOCAL_REGISTRY = "127.0.0.1:7078"
# The API of Docker Hub answers under another name than its references.
_API_HOSTS = {DEFAULT_REGISTRY: "registry-1.docker.io"}
# `uname -m` → the platform as image manifests name it.
PLATFORMS = {"aarch64": "linux/arm64", "x86_64": "linux/amd64"}


@dataclass(frozen=True)
class Reference:
    """An image reference taken apart as Docker does.

    Attributes:
        registry: Host, with its port where given ("docker.io", "10.0.0.5:5000").
        repository: Path inside the registry ("library/debian").
        tag: Tag, or "".
        digest: "sha256:…", or "".
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""


def parse(reference: str) -> Reference:
    """Take a reference apart; the first component is a host when it has '.', ':' or is localhost.

    ``debian`` means ``docker.io/library/debian``.
    """
    name, _, digest = reference.partition("@")
    head, colon, tail = name.rpartition(":")
    # A colon before the last slash belongs to a port.
    tag = ""
    if colon and "/" not in tail:
        name, tag = head, tail
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry = DEFAULT_REGISTRY if first in _ALIASES else first
        repository = rest
    else:
        registry, repository = DEFAULT_REGISTRY, name
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, tag, digest)


def pull_reference(reference: str, pin: ImagePin) -> str:
    """``127.0.0.1:7078/REGISTRY/REPOSITORY@sha256:…`` as the host's Docker lists and runs it.

    Docker is given every image on loopback, out of bytes that came from a peer or from a registry
    (`lockstep/onhost/images/loopback_registry.py`); the name still says where the image is from,
    whatever mirror it came by. The digest is the pin's: the same content has the same digest
    everywhere.
    """
    image = parse(reference)
    # A port's colon may stand in the first part of a name alone.
    registry = image.registry.replace(":", "-")
    return f"{LOCAL_REGISTRY}/{registry}/{image.repository}@{pin.digest}"


def api_address(reference: Reference, sources: Sources) -> str:
    """Base address of the repository in the registry that the inventory names for it.

    ``https://REGISTRY/v2/REPOSITORY``
    """
    host = sources.registries.get(reference.registry, reference.registry).rstrip("/")
    # A mirror may keep one registry's images below a path of its own.
    host, _, prefix = host.partition("/")
    scheme = "http" if host in sources.plain_registries else "https"
    path = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return f"{scheme}://{_API_HOSTS.get(host, host)}/v2/{path}"


def pinned_reference(reference: str, pins: Pins) -> str:
    """`pull_reference` with the pin looked up; ResolveError where there is none."""
    return pull_reference(reference, held(pins.images, reference))
