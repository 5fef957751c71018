"""What hosts of a lab have fetched and copied, and that nothing of the copying is left."""

from __future__ import annotations

import re
from collections import Counter

from stack import Host, Stack

from lab.http.access_log import Request
from lockstep.lock import lockfile

MODELS = "/data/models/huggingface"
SERVERS = ("hub", "registry", "web", "git")
#: What every host fetches for itself.
OWN = ("apt", "uv", "tools")


def fetched(stack: Stack, since: float = 0.0) -> dict[str, Counter[str]]:
    """Host's address → what it took from the servers since then, in bytes."""
    record = lockfile.load(stack.lock)
    tools = {name for key, pin in record.python.items() if "tools" in key for name in pin.versions}
    found: dict[str, Counter[str]] = {}
    for service in SERVERS:
        for request in stack.requests(service):
            if request.time >= since and request.method != "HEAD":
                counts = found.setdefault(request.client, Counter())
                counts[kind(service, request, tools)] += request.sent
    return found


def kind(service: str, request: Request, tools: set[str]) -> str:
    """What a request was for: the server, and of packages apt, uv, the tools, or wheels."""
    if service != "web":
        return service
    if request.path.startswith("/apt/"):
        return "apt"
    found = re.match(r"/(?:simple|torch|flashinfer)/([^/]+)/", request.path)
    project = found[1] if found else ""
    if project == "uv":
        return "uv"
    return "tools" if project in tools else "wheels"


def address(host: Host) -> str:
    """The host's address in the lab's network."""
    return host.root("hostname -I").split()[0]


def hashes(host: Host, folders: str = ".") -> list[str]:
    """Hash and name of every file in the hub cache, or in these folders of it."""
    listed = host.root(
        f"cd {MODELS}/hub && find {folders} -type f -path '*/blobs/*' -exec sha256sum {{}} +"
    )
    return sorted(listed.splitlines())


def nothing_is_left(stack: Stack) -> None:
    """No port, no unit and no token of the copying."""
    for host in stack.hosts:
        assert host.root("ss -Hltn 'sport = :7077'") == ""
        assert host.run("systemctl is-active lockstep-peer.service").out.strip() == "inactive"
        # No folder at all where none was copied since the boot.
        assert host.root("cd /run/lockstep/peers 2>/dev/null && find -name '*.json'; true") == ""
