"""Downloads and copies of a lab's hosts, and leftovers of the copying."""

import re
from collections import Counter

from stack import Host, Stack

from lab.http.access_log import Request
from lockstep.lock import lockfile

MODELS = "/data/models/huggingface"
SERVERS = ("hub", "registry", "web", "git")
#: What every host fetches for itself.
OWN = ("apt", "uv", "tools")


def fetched_bytes(stack: Stack, since: float = 0.0) -> dict[str, Counter[str]]:
    """Host's address → bytes that it took from the servers since then."""
    record = lockfile.load(stack.lock)
    tools = {name for key, pin in record.python.items() if "tools" in key for name in pin.versions}
    bytes_by_client: dict[str, Counter[str]] = {}
    for service in SERVERS:
        for request in stack.requests(service):
            if request.time >= since and request.method != "HEAD":
                counts = bytes_by_client.setdefault(request.client, Counter())
                counts[kind(service, request, tools)] += request.body_bytes
    return bytes_by_client


def kind(service: str, request: Request, tools: set[str]) -> str:
    """The purpose of a request: the server, and of packages apt, uv, the tools, or wheels."""
    if service != "web":
        return service
    if request.path.startswith("/apt/"):
        return "apt"
    match = re.match(r"/(?:simple|torch|flashinfer)/([^/]+)/", request.path)
    project = match[1] if match else ""
    if project == "uv":
        return "uv"
    return "tools" if project in tools else "wheels"


def address(host: Host) -> str:
    """The host's address in the lab's network."""
    return host.root("hostname -I").split()[0]


def hashes(host: Host, folders: str = ".") -> list[str]:
    """Hash and name of every file in the hub cache, or in these folders of it."""
    output = host.root(
        f"cd {MODELS}/hub && find {folders} -type f -path '*/blobs/*' -exec sha256sum {{}} +"
    )
    return sorted(output.splitlines())


def nothing_is_left(stack: Stack) -> None:
    """Check that no port, unit or token of the copying is left."""
    for host in stack.hosts:
        assert host.root("ss -Hltn 'sport = :7077'") == ""
        assert host.run("systemctl is-active lockstep-peer.service").out.strip() == "inactive"
        # No folder at all where none was copied since the boot.
        assert host.root("cd /run/lockstep/peers 2>/dev/null && find -name '*.json'; true") == ""
