"""Preflight: foreign things in the way of the deploy.

The programs that write on the host judge by the same rule once more
(`lockstep/onhost/records/ownership.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lockstep.core.findings import Finding
from lockstep.files.managed_file import BACKUP_ACCOUNT, GATEWAY_ACCOUNT
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import UV
from lockstep.inventory.host import HostPlan
from lockstep.onhost.docker.docker_api import LABEL
from lockstep.onhost.records.ownership import DOCKER, FOLDER
from lockstep.resources.files import secret_modes
from lockstep.system.accounts import system_accounts
from lockstep.system.base_files import docker_restart_key
from lockstep.system.folders import folders


def question(desired_state: DesiredState) -> dict[str, Any]:
    """Return the question for `deploy_records.foreign_obstacles`: all a deploy changes."""
    settings = desired_state.plan.settings
    files = {file.path: file.check for file in desired_state.all_files}
    files |= dict.fromkeys(secret_modes(desired_state))
    return {
        "files": [{"path": path, "check": check} for path, check in files.items()],
        "folders": [asdict(folder) for folder in folders(settings)],
        "links": [UV],
        "accounts": [account.name for account in system_accounts(desired_state.plan)],
        "docker": {"label": LABEL, "restart_key": docker_restart_key(settings)},
        "adopt": list(settings.adopt),
    }


def findings(plan: HostPlan, foreign: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each foreign thing."""
    for description, owner in foreign.items():
        does, remedy = _MEANS.get(description) or _MEANS.get(
            description.rpartition(" ")[0], _MEANS[""]
        )
        message = f"{description} was not made by Lockstep ({owner}), and the deploy would {does}"
        # Nothing takes over a folder where a file belongs.
        adoption = f', or take it over on purpose: `"adopt": ("{description}",)` for this host'
        remedy += f"{'' if owner == FOLDER else adoption}."
        yield Finding("not-ours", "error", plan.name, message, remedy)


_MEANS = {
    f"unit {DOCKER}": ("restart it for the proxy", "Stop these containers"),
    "": ("replace or change it", "Move it away, or name another path or unit in the inventory"),
    "unit": ("put another unit in its place", "Give the model another `unit`"),
    f"account {GATEWAY_ACCOUNT}": ("let the gateway run as it", "Give that account another name"),
    f"account {BACKUP_ACCOUNT}": ("let a peer log in as it", "Give that account another name"),
    "account": ("let the engines run as it, with Docker", "Set `service_user` to another name"),
}
