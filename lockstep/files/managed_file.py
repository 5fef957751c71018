"""A file that the deploy owns on a Spark, and the fixed places where such files are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core.program_command_lines import PROGRAMS, PYTHON, command
from lockstep.onhost.records.ownership import BACKUP_HOME, GATEWAY_HOME, HOME, MARK

Check = Literal[
    "unit", "shell", "sudoers", "json", "nft", "caddy", "prometheus", "rules", "alertmanager"
]
Stage = Literal[
    "base", "firewall", "fabric", "services", "gateway", "switch", "webui", "monitoring"
]

# Environments of our own tools, named by their contents.
ENVIRONMENTS = f"{PROGRAMS}/environments"
# A link to the current environment of Python packages that our programs import, at exact versions.
TOOLS_VENV = f"{ENVIRONMENTS}/tools"
# A link to the current environment of uv, which the system's pip installs.
UV_VENV = f"{ENVIRONMENTS}/uv"
CONFIGURATION = "/etc/lockstep"
SYSTEMD = "/etc/systemd/system"
# The deploy's own state. Not under HOME, the service user's home with the compilers' caches: root
# trusts the state, and the engines own HOME.
STATE = "/var/lib/lockstep-deploy"
# Our own Docker client configuration. A user's may hold proxies, which Docker would pass on into
# every container.
DOCKER_CONFIG = f"{CONFIGURATION}/docker"
SERVED_WEIGHTS = f"{CONFIGURATION}/served-weights.json"
WEBUI_SECRETS = f"{CONFIGURATION}/secrets/open-webui.env"
# Made once on the host. Every engine port that other machines can reach asks for it.
API_KEY = f"{CONFIGURATION}/secrets/api-key"
# The unit that starts, watches and stops the ranks of a cluster together.
AGENT_UNIT = "lockstep-cluster.service"
PROXY_ENVIRONMENT = f"{CONFIGURATION}/proxy.env"
# The proxy, and the package index for uv and our other tools.
TOOLS_ENVIRONMENT = f"{CONFIGURATION}/tools.env"
OPERATORS_GROUP = "lockstep-operators"
# Account of the gateway; its group may read the keys of people.
GATEWAY_ACCOUNT = "lockstep-gateway"
# Account by which another Spark puts its backups here; it has neither a shell nor a password.
BACKUP_ACCOUNT = "lockstep-backup"
# Signs the certificates by which the Sparks of an inventory know each other; the same on each.
PEER_AUTHORITY = f"{CONFIGURATION}/secrets/peer-authority.pem"
GATEWAY_UNIT = "lockstep-gateway.service"
# The unit that gives the gateway, which has no rights, the switch.
GATEWAY_SWITCH = "lockstep-gateway-switch"
GATEWAY_CONFIGURATION = f"{CONFIGURATION}/gateway.json"
# Written by `gateway-keys`, and by no deploy.
GATEWAY_KEYS = f"{GATEWAY_HOME}/keys.json"

__all__ = ["BACKUP_HOME", "GATEWAY_HOME", "HOME", "MARK", "PROGRAMS", "PYTHON", "command"]


def peer_identity(role: str, host: str) -> str:
    """Return the path of a role's key and certificate on a host; mode 0600."""
    return f"{CONFIGURATION}/secrets/{peer_tls.identity_file_name(role, host)}"


@dataclass(frozen=True)
class ManagedFile:
    """One file on a host, whole.

    Attributes:
        path: Full path.
        text: Contents.
        mode: Permissions, octal.
        owner: Account.
        group: Group.
        check: The tool that must accept it before it replaces the old file: systemd-analyze verify,
            sh -n, visudo -cf, nft -c, caddy adapt, promtool, amtool, a JSON parser; None: nothing
            can be checked.
        stage: Step of the deploy that writes it. Files that model units read come with these units,
            so that a restart never meets a file of an earlier deploy.
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
        """True if it may hold a password. Its text is then never shown or read back."""
        return self.mode in ("0600", "0640")


@dataclass(frozen=True)
class Folder:
    """A folder with its mode (octal text) and owner."""

    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"


def unit_file(name: str, text: str, stage: Stage = "switch") -> ManagedFile:
    """Return the file of a systemd unit, given the unit's name with the suffix."""
    return ManagedFile(f"{SYSTEMD}/{name}", text, check="unit", stage=stage)
