"""Container images: from the name in a recipe to the exact image that a host pulls."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.inventory.settings import Sources
from lockstep.lock.pins import ImagePin, Pins, entry_of

DEFAULT_REGISTRY = "docker.io"
# Other names of the default registry that Docker itself accepts in a reference.
_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})

# Docker on each host is given every image here, while it takes it.
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
    """Split a reference; the first component is a host if it has '.', ':' or is localhost.

    ``debian`` means ``docker.io/library/debian``.
    """
    name, _, digest = reference.partition("@")
    head, colon, tail = name.rpartition(":")
    # A colon before the last slash belongs to a port.
    tag = ""
    if colon and "/" not in tail:
        name, tag = head, tail
    first, slash, rest_of_name = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry = DEFAULT_REGISTRY if first in _ALIASES else first
        repository = rest_of_name
    else:
        registry, repository = DEFAULT_REGISTRY, name
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, tag, digest)


def pull_reference(reference: str, pin: ImagePin) -> str:
    """Return the name by which the host's Docker lists and runs an image.

    It is ``127.0.0.1:7078/REGISTRY/REPOSITORY@sha256:…``. Docker is given every image on loopback,
    out of bytes that came from a peer or from a registry
    (`lockstep/onhost/images/loopback_registry.py`). The name still says where the image is from,
    whatever mirror it came by. The digest is the pin's: the same content has the same digest
    everywhere.
    """
    image = parse(reference)
    # A port's colon can stand only in the first part of a name.
    registry = image.registry.replace(":", "-")
    return f"{LOCAL_REGISTRY}/{registry}/{image.repository}@{pin.digest}"


def api_address(reference: Reference, sources: Sources) -> str:
    """Return the repository's base address in the registry that the inventory names for it.

    ``https://REGISTRY/v2/REPOSITORY``
    """
    host = sources.registries.get(reference.registry, reference.registry).rstrip("/")
    # A mirror may keep one registry's images below a path of its own.
    host, _, prefix = host.partition("/")
    scheme = "http" if host in sources.plain_registries else "https"
    path = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return f"{scheme}://{_API_HOSTS.get(host, host)}/v2/{path}"


def pinned_reference(reference: str, pins: Pins) -> str:
    """Return `pull_reference` with the pin looked up; ResolveError where there is none."""
    return pull_reference(reference, entry_of(pins.images, reference))
