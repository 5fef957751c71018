"""The question to one host for its snapshot: everything that inventory data names."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    MARK,
    OPERATORS_GROUP,
    PROGRAMS,
    SYSTEMD,
    TOOLS_VENV,
    UV_VENV,
    WEBUI_SECRETS,
)
from lockstep.host.intended import Intended
from lockstep.host.specs import UV, weights_spec
from lockstep.inventory.bound_targets import LOOPBACK
from lockstep.system.firewall import KEPT
from lockstep.system.folders import HUB_TOKEN, folders
from lockstep.units.agent_unit import key_path
from lockstep.units.all_files import absent_files

# Groups that give rights: only whom the inventory names may be in them.
RIGHTS = (OPERATORS_GROUP, "docker")

# Settings that a service of the system reads once, when it starts.
_READS = {
    "docker.service": ["/etc/docker/daemon.json"],
    "ssh.service": ["/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"],
}


def question(this: Intended, *, key: bytes, deep: bool) -> dict[str, Any]:
    """The question for one host.

    Args:
        this: The host as it is to be.
        key: Key of this run's hashes.
        deep: Whether every file of weights and packages is read.

    Raises:
        LockstepError: the record lacks something that the inventory asks for.
    """
    settings = this.plan.settings
    files = this.all_files({})
    secrets = [WEBUI_SECRETS] if settings.webui.enabled else []
    keys = [API_KEY] if this.key_users else []
    clusters = [key_path(group.name) for group in this.plan.groups]
    venvs = {"tools": TOOLS_VENV, "uv": UV_VENV}
    if this.engine_spec:
        venvs["engine"] = f"{this.engine_spec['home']}/venv"
    return {
        "key": key.hex(),
        "deep": deep,
        "mark": MARK,
        "files": [file.path for file in files],
        "folders": [folder.path for folder in folders(settings)],
        "absent": list(absent_files(settings)),
        "marked": [SYSTEMD, settings.paths.scripts],
        "own": [PROGRAMS, CONFIGURATION],
        "made": [KEPT] if settings.firewall.enabled else [],
        "secrets": [*secrets, *keys, *clusters],
        "entries": secrets,
        "shared": clusters,
        "token": HUB_TOKEN,
        "venvs": venvs,
        "units": [PurePosixPath(file.path).name for file in files if file.check == "unit"],
        "system_units": system_units(this),
        "links": [UV, UV_VENV, TOOLS_VENV],
        "reads": {
            **_READS,
            **{unit: keys for unit in this.key_users},
            **{unit: [*secrets, *keys] for unit in this.webui_units},
        },
        "engine": this.engine_question,
        "images": this.images,
        "weights": weights_spec(this.plan, this.pins),
        "sysctls": list(settings.sysctls),
        "rights": list(RIGHTS),
        "ports": _ports(this),
    }


def system_units(this: Intended) -> list[str]:
    """Services of the system that a Spark cannot do without."""
    found = ["ssh.service", "docker.service", "containerd.service"]
    return [*found, "earlyoom.service"] if "earlyoom" in this.plan.settings.packages else found


def _ports(this: Intended) -> dict[str, list[str]]:
    """Port → addresses at which it may be open."""
    settings = this.plan.settings
    found: dict[str, list[str]] = {}
    for target in this.plan.targets:
        for recipe in target.recipes:
            found.setdefault(str(target.port), []).append(target.data.bind)
            behind = target.engine_port(recipe)
            if behind is not None:
                found.setdefault(str(behind), []).append(LOOPBACK)
    if settings.webui.enabled:
        found.setdefault(str(settings.webui.port), []).append(settings.webui.bind)
    return found
