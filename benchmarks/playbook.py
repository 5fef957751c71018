"""An Ansible playbook that manages what our deploy manages, resource by resource.

Fair to Ansible: one task with a loop where it can loop, one call where a module takes a list,
read-only commands marked as such. Only for comparison; nothing deploys with it.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from typing import Any

from lockstep.deploy.questions import WEIGHTS_SPEC
from lockstep.files.managed_file import (
    HOME,
    OPERATORS_GROUP,
    SYSTEMD,
    WEBUI_SECRETS,
    ManagedFile,
    command,
)
from lockstep.inventory.host import HostPlan, images_of
from lockstep.lock.engine_id import engine_id
from lockstep.lock.pins import Pins
from lockstep.system.accounts import people
from lockstep.system.base_files import absent_files
from lockstep.system.firewall import TABLE
from lockstep.system.folders import folders, model_units
from lockstep.units.all_files import deployed_files


def variables(plan: HostPlan, pins: Pins) -> dict[str, list[dict[str, str]]]:
    """One host's variables: its files, whose text differs between hosts.

    Args:
        plan: The host.
        pins: The lock.
    """
    return {
        "managed_files": [
            {
                "path": file.path,
                "text": base64.b64encode(file.text.encode()).decode(),
                "mode": file.mode,
                "owner": file.owner,
                "group": file.group,
            }
            for file in files_of(plan, pins)
        ]
    }


def files_of(plan: HostPlan, pins: Pins) -> tuple[ManagedFile, ...]:
    """Everything that the deploy writes on a host as files; arguments as for `variables`."""
    engine = engine_id(plan.settings, pins)
    return deployed_files(plan, pins, engine_id=engine)


def tasks(plan: HostPlan, pins: Pins) -> list[dict[str, Any]]:
    """The play's tasks, the same for every host of the plan's inventory; arguments as above."""
    settings = plan.settings
    user = {"name": settings.service_user, "system": True, "home": HOME, "groups": ["docker"]}
    engine = f"{settings.paths.engines}/current/venv"
    images = [pins.images[name].digest for name in images_of(plan)]
    files = files_of(plan, pins)
    return [
        _task("group", {"name": OPERATORS_GROUP, "system": True}),
        _task("user", {**user, "append": True, "shell": "/usr/sbin/nologin"}),
        # Permission to switch and access to Docker differ; the deploy's own rule assigns them.
        *(
            _task("user", {"name": account.name, "groups": list(account.groups), "append": True})
            for account in people(settings)
        ),
        _loop(
            "file",
            {"path": "{{ item.path }}", "state": "directory", **_OWNER},
            [vars(folder) for folder in folders(settings)],
        ),
        _loop(
            "copy",
            {"dest": "{{ item.path }}", "content": "{{ item.text | b64decode }}", **_OWNER},
            "{{ managed_files }}",
        ),
        _loop("file", {"path": "{{ item }}", "state": "absent"}, list(absent_files(settings))),
        *([_read("nft", "list", "table", "inet", TABLE)] if settings.firewall.enabled else []),
        # Not the module `apt`: it needs python3-apt, which the lab's root lacks, and takes longer.
        _read("dpkg-query", "-W", *settings.packages),
        _loop("command", {"cmd": "sysctl -n {{ item }}"}, list(settings.sysctls)),
        _read("/usr/local/bin/uv", "--version"),
        _read("/usr/local/bin/uv", "pip", "freeze", "--python", engine),
        _read("docker", "image", "inspect", *images) | {"failed_when": False},
        _read(*command("fetch-weights", WEIGHTS_SPEC)),
        # The module `systemd` takes a unit without [Install] as enabled and disables it each time.
        _read("systemctl", "is-enabled", *model_units(files)) | {"failed_when": False},
        _task("stat", {"path": WEBUI_SECRETS}),
        *(
            _task("systemd_service", {"name": unit, "enabled": True, "state": "started"})
            for unit in _at_boot(files)
        ),
    ]


def _at_boot(files: Sequence[ManagedFile]) -> list[str]:
    """Units that the deploy enables and starts; their text says what brings them at boot."""
    return [
        file.path.removeprefix(f"{SYSTEMD}/")
        for file in files
        if file.check == "unit" and "\n[Install]\n" in file.text
    ]


_OWNER = {"mode": "{{ item.mode }}", "owner": "{{ item.owner }}", "group": "{{ item.group }}"}


def _task(module: str, arguments: dict[str, Any]) -> dict[str, Any]:
    subject = arguments.get("name") or arguments.get("cmd") or arguments.get("path", "")
    return {"name": f"{module} {subject}".strip(), f"ansible.builtin.{module}": arguments}


def _loop(module: str, arguments: dict[str, Any], items: list[Any] | str) -> dict[str, Any]:
    read = {"changed_when": False} if module == "command" else {}
    label = {"label": "{{ item.path | default(item) }}"}
    return {**_task(module, arguments), "loop": items, "loop_control": label, **read}


def _read(*argv: str) -> dict[str, Any]:
    return {**_task("command", {"cmd": shlex.join(argv)}), "changed_when": False}
