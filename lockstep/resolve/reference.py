"""Image references taken apart as Docker reads them: registry, repository, tag, digest."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.settings import Sources

DEFAULT_REGISTRY = "docker.io"
# The registry's API of Docker Hub answers under another name than its references.
API_HOSTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class Reference:
    """Where one image is.

    Attributes:
        registry: Host and port ("ghcr.io").
        repository: Path in that registry ("library/debian").
        tag: "latest" where the reference has neither tag nor digest; "" beside a digest.
        digest: "sha256:…", or "".
    """

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def asked(self) -> str:
        """What a manifest is asked for by: the digest where there is one, else the tag."""
        return self.digest or self.tag


def parse(text: str) -> Reference:
    """A reference with Docker's defaults: docker.io, library/, :latest."""
    name, _, digest = text.partition("@")
    head, slash, rest = name.partition("/")
    is_host = slash and ("." in head or ":" in head or head == "localhost")
    registry, path = (head, rest) if is_host else (DEFAULT_REGISTRY, name)
    path, _, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in path:
        path = f"library/{path}"
    return Reference(registry, path, tag or ("" if digest else "latest"), digest)


def api(reference: Reference, sources: Sources) -> str:
    """Base address of the repository in the registry that the inventory names for it."""
    host = sources.registries.get(reference.registry, reference.registry)
    # A mirror may keep one registry's images below a path of its own.
    host, _, prefix = host.partition("/")
    scheme = "http" if host in sources.plain_registries else "https"
    path = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return f"{scheme}://{API_HOSTS.get(host, host)}/v2/{path}"
