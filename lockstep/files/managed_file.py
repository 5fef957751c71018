"""A file that the deploy owns on a Spark, and the fixed places where such files are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lockstep.onhost.core.program import PROGRAMS, PYTHON, command
from lockstep.onhost.records.ours import BACKUP_HOME, GATEWAY_HOME, HOME, MARK

Check = Literal[
    "unit", "shell", "sudoers", "json", "nft", "caddy", "prometheus", "rules", "alertmanager"
]
Stage = Literal[
    "base", "firewall", "fabric", "services", "gateway", "switch", "webui", "monitoring"
]

# Environments of our own tools, named by what is in them.
ENVIRONMENTS = f"{PROGRAMS}/environments"
# Python packages that our programs import, at exact versions: a link to the one in use.
TOOLS_VENV = f"{ENVIRONMENTS}/tools"
# uv, installed by the system's pip: a link to the one in use.
UV_VENV = f"{ENVIRONMENTS}/uv"
CONFIGURATION = "/etc/lockstep"
SYSTEMD = "/etc/systemd/system"
# What the deploy keeps about itself. Not under HOME, the service user's home with the caches of the
# compilers: root trusts it, and the engines own HOME.
STATE = "/var/lib/lockstep-deploy"
# A Docker client configuration of our own: the one of a user may hold proxies, which Docker would
# pass on into every container.
DOCKER_CONFIG = f"{CONFIGURATION}/docker"
SERVED_WEIGHTS = f"{CONFIGURATION}/served-weights.json"
WEBUI_SECRETS = f"{CONFIGURATION}/secrets/open-webui.env"
# Made once on the host; asked for at every port of an engine that other machines can reach.
API_KEY = f"{CONFIGURATION}/secrets/api-key"
# Starts, watches and stops the ranks of a cluster together.
AGENT_UNIT = "lockstep-cluster.service"
PROXY_ENVIRONMENT = f"{CONFIGURATION}/proxy.env"
# The proxy's, and the package index that uv and our other tools are installed from.
TOOLS_ENVIRONMENT = f"{CONFIGURATION}/tools.env"
OPERATORS_GROUP = "lockstep-operators"
# Account of the gateway; its group may read the keys of people.
GATEWAY_ACCOUNT = "lockstep-gateway"
# Account by which another Spark puts its backups here; it has neither a shell nor a password.
BACKUP_ACCOUNT = "lockstep-backup"
# By which gateways of peers know each other; the same on each of them.
PEER_KEY = f"{CONFIGURATION}/secrets/gateway-peers.key"
GATEWAY_UNIT = "lockstep-gateway.service"
# Gives the gateway, which has no rights, the switch.
GATEWAY_SWITCH = "lockstep-gateway-switch"
GATEWAY_CONFIGURATION = f"{CONFIGURATION}/gateway.json"
# Written by `gateway-keys`, and by no deploy.
GATEWAY_KEYS = f"{GATEWAY_HOME}/keys.json"

__all__ = ["BACKUP_HOME", "GATEWAY_HOME", "HOME", "MARK", "PROGRAMS", "PYTHON", "command"]


@dataclass(frozen=True)
class ManagedFile:
    """One file on a host, whole.

    Attributes:
        path: Full path.
        text: Contents.
        mode: Permissions, octal.
        owner: Account.
        group: Group.
        check: Which tool must accept it before it replaces what is there: systemd-analyze verify,
            sh -n, visudo -cf, nft -c, caddy adapt, promtool, amtool, a JSON parser; None: nothing
            can be checked.
        stage: Step of the deploy that writes it. What model units read comes with them, so that a
            restart never meets the file of the deploy before.
    """

    path: str
    text: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    check: Check | None = None
    stage: Stage = "base"

    @property
    def private(self) -> bool:
        """Whether it may hold a password: its text is shown nowhere and read back by nobody."""
        return self.mode in ("0600", "0640")


def unit_file(name: str, text: str, stage: Stage = "switch") -> ManagedFile:
    """A unit of systemd, by its name with the suffix."""
    return ManagedFile(f"{SYSTEMD}/{name}", text, check="unit", stage=stage)
