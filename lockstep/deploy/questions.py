"""All questions of a deploy to one host at once, by the name of the reader that answers."""

from __future__ import annotations

from typing import Any

from lockstep import preflight, resources
from lockstep.files.managed_file import (
    CONFIGURATION,
    OPERATORS_GROUP,
)
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import UV
from lockstep.monitoring import stack
from lockstep.onhost.facts import files
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.records import original_state
from lockstep.preflight import foreign
from lockstep.resources.accounts import wanted_accounts
from lockstep.resources.files import KEY
from lockstep.system.folders import folders

#: Units of our drop-ins: protection from the out-of-memory killer, Docker's proxy.
SYSTEM_UNITS = ("ssh.service", "docker.service")
#: Caches in which uv and pip keep packages that root installs through them.
TOOLS_CACHES = ("/root/.cache/uv", "/root/.cache/pip")
WEIGHTS_SPEC = f"{CONFIGURATION}/weights.json"


def questions(desired_state: DesiredState) -> dict[str, Any]:
    """Return all questions of a deploy's operations to one host."""
    return {
        "preflight": {
            **preflight.questions(desired_state.plan, desired_state.pins),
            "packages": desired_state.packages,
        },
        "deploy_records.foreign_obstacles": foreign.question(desired_state),
        **resources.questions(desired_state),
        "packages.brought_packages": None,
        "deploy_records.items_missing_in_baseline": touched_things(desired_state),
        "environments.package_versions_by_venv": [
            environment.folder for environment in desired_state.tool_environments.values()
        ],
        "files": _files(desired_state),
        "units": {"programs": _units(desired_state)},
        "environments": desired_state.engine_question,
        "docker.image_architectures": desired_state.images,
        "weights": WEIGHTS_SPEC,
        "deploy_records.generation": None,
        "deploy_records.sealed_key_changes_and_fault": KEY,
        "machine.available": None,
    }


def touched_things(desired_state: DesiredState) -> dict[str, list[str]]:
    """Return everything outside our own folders that a deploy may change, for the baseline."""
    settings = desired_state.plan.settings
    accounts = wanted_accounts(desired_state)
    places = [folder.path for folder in folders(settings)]
    return {
        "paths": original_state.with_parent_folders(
            [*desired_state.paths, *places, UV, *TOOLS_CACHES]
        ),
        "accounts": [account.name for account in accounts],
        "groups": list(
            dict.fromkeys(
                [
                    OPERATORS_GROUP,
                    *(name for made_account in accounts for name in made_account.groups),
                ]
            )
        ),
        "sysctls": list(settings.sysctls),
    }


def _files(desired_state: DesiredState) -> dict[str, Any]:
    """Return the question about files, with the contents that need not be shown."""
    shown_files = (file for file in desired_state.all_files if not file.private)
    contents = {file.path: seal(KEY, file.text.encode()) for file in shown_files}
    return {**resources.files.questions(desired_state)[files.read], "key": KEY, "shown": contents}


def _units(desired_state: DesiredState) -> dict[str, list[str]]:
    watching = (*desired_state.watch_units, *desired_state.boot_units)
    every = (
        *(
            *SYSTEM_UNITS,
            *desired_state.model_units,
            *desired_state.gateway_units,
            *desired_state.webui_units,
        ),
        *watching,
        *stack.units(desired_state.plan),
        # systemd may hold an older file of any of these units, even of one that a timer starts.
        *desired_state.unit_files,
    )
    return {name: desired_state.unit_programs.get(name, []) for name in every}
