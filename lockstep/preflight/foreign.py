"""Preflight: foreign things in the way of the deploy.

What writes on the host judges by the same rule once more (`lockstep/onhost/records/ours.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lockstep.core.findings import Finding
from lockstep.files.managed_file import BACKUP_ACCOUNT, GATEWAY_ACCOUNT
from lockstep.host.intended import Intended
from lockstep.host.specs import UV
from lockstep.inventory.host import HostPlan
from lockstep.onhost.records.ours import DOCKER
from lockstep.system.accounts import ours
from lockstep.system.base_files import docker_generation
from lockstep.system.folders import folders
from lockstep.units.docker_run import LABEL


def question(this: Intended) -> dict[str, Any]:
    """What to ask the reader `records.intruders`: everything that a deploy writes or changes."""
    settings = this.plan.settings
    return {
        "files": [{"path": file.path, "check": file.check} for file in this.all_files],
        "folders": [asdict(folder) for folder in folders(settings)],
        "links": [UV],
        "accounts": [account.name for account in ours(this.plan)],
        "docker": {"label": LABEL, "generation": docker_generation(settings)},
        "adopt": list(settings.adopt),
    }


def findings(plan: HostPlan, foreign: Mapping[str, str]) -> Iterator[Finding]:
    """One finding for each thing of somebody else's."""
    for what, whose in foreign.items():
        does, remedy = _MEANS.get(what) or _MEANS.get(what.rpartition(" ")[0], _MEANS[""])
        message = f"{what} was not made by Lockstep ({whose}), and the deploy would {does}"
        remedy += f', or take it over on purpose: `"adopt": ("{what}",)` for this host.'
        yield Finding("not-ours", "error", plan.name, message, remedy)


_MEANS = {
    f"unit {DOCKER}": ("restart it for the proxy", "Stop these containers"),
    "": ("replace or change it", "Move it away, or name another path or unit in the inventory"),
    "unit": ("put another unit in its place", "Give the target another `unit`"),
    f"account {GATEWAY_ACCOUNT}": ("let the gateway run as it", "Give that account another name"),
    f"account {BACKUP_ACCOUNT}": ("let a twin log in as it", "Give that account another name"),
    "account": ("let the engines run as it, with Docker", "Set `service_user` to another name"),
}
