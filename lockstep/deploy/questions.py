"""All questions of a deploy to one host at once: name of a reader → question."""

from __future__ import annotations

import hashlib
from typing import Any

from lockstep import preflight
from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    DOCKER_CONFIG,
    ENVIRONMENTS,
    GATEWAY_HOME,
    GATEWAY_KEYS,
    OPERATORS_GROUP,
    PEER_KEY,
    PROGRAMS,
    PROXY_ENVIRONMENT,
    SYSTEMD,
    TOOLS_ENVIRONMENT,
    TOOLS_VENV,
    UV_VENV,
    WEBUI_SECRETS,
)
from lockstep.files.tree import KEY
from lockstep.host.intended import Intended
from lockstep.host.specs import UV
from lockstep.monitoring import stack
from lockstep.monitoring.alertmanager import credential_path
from lockstep.onhost.core import atomic
from lockstep.onhost.records import found
from lockstep.preflight import foreign
from lockstep.system import firewall, netplan
from lockstep.system.accounts import ours, people
from lockstep.system.base_files import absent_files, system_units
from lockstep.system.firewall import KEPT, RULES
from lockstep.system.folders import HUB_TOKEN, folders
from lockstep.units import backup_twin
from lockstep.units.agent_unit import key_path
from lockstep.units.backup_unit import PASSWORD
from lockstep.units.gateway_unit import PAGE
from lockstep.units.targets_json import TARGETS
from lockstep.units.tls_unit import CADDYFILE, GIVEN, ROOT, authority_path

#: What our drop-ins concern: protection from the out-of-memory killer, Docker's proxy.
SYSTEM_UNITS = ("ssh.service", "docker.service")
#: Where uv and pip keep what root installs through them.
TOOLS_CACHES = ("/root/.cache/uv", "/root/.cache/pip")
WEIGHTS_SPEC = f"{CONFIGURATION}/weights.json"
_ENGINE = ("pytorch", "vllm", "flashinfer", "check", "activate")
#: Files that only some inventories ask for: one that asks no more has them removed.
_NAMED = (
    key_path("*"),
    PEER_KEY,
    authority_path("*"),
    *GIVEN.values(),
    CADDYFILE,
    ROOT,
    *stack.CONFIGURATIONS,
    credential_path("*"),
    API_KEY,
    *backup_twin.FILES,
    # A module that stays would still be imported: engines are found by their folder.
    f"{PROGRAMS}/lockstep/**/*.py",
)
#: Patterns of all files and folders ("…/") that any deploy may have made in the folders in which
#: diff and remove know each file of ours. Records of generations do not do it: they have what a
#: deploy writes for the units, neither keys that are made on the host, nor configurations without a
#: mark (JSON), folders, and what a write that was cut off left. It makes nothing ours outside these
#: folders, which are ours; what it lacks there counts as somebody else's, and stays.
EVER_OURS = (
    *_NAMED,
    *(f"{CONFIGURATION}/{name}.json" for name in ("engine", "gateway", "served-weights")),
    *(TARGETS, WEIGHTS_SPEC, PAGE, f"{DOCKER_CONFIG}/config.json", RULES, KEPT),
    *(PROXY_ENVIRONMENT, TOOLS_ENVIRONMENT, f"{CONFIGURATION}/requirements-*.txt"),
    *(HUB_TOKEN, WEBUI_SECRETS, GATEWAY_KEYS, PASSWORD),
    *(f"{DOCKER_CONFIG}/", f"{CONFIGURATION}/secrets/"),
    *(f"{GATEWAY_HOME}/", f"{PROGRAMS}/__main__.py", f"{PROGRAMS}/lockstep/**/"),
    f"{ENVIRONMENTS}/",
    # What a write that was cut off leaves.
    *(f"{folder}/**/{atomic.PREFIX}*" for folder in (CONFIGURATION, PROGRAMS)),
)
#: Jobs of a deploy that a host which comes to its units has behind it, whichever run did them.
JOB_UNITS = tuple(
    f"lockstep-job-{name}.service"
    for name in (
        *("rollout", "cluster-up", "apt", "tools", *(f"engine-{each}" for each in _ENGINE)),
        *("configurations", "weights", "image-check"),
    )
)


def questions(this: Intended) -> dict[str, Any]:
    """Everything that the operations of a deploy to one host want to know of it."""
    settings = this.plan.settings
    asked: dict[str, Any] = {
        "preflight": {**preflight.questions(this.plan, this.pins), "packages": this.packages},
        "records.intruders": foreign.question(this),
        "packages": this.packages,
        "packages.noted": None,
        "records.unnoted": touched(this),
        "accounts": {
            "accounts": [account.name for account in (*ours(this.plan), *people(settings))],
            "groups": [OPERATORS_GROUP],
        },
        "machine.sysctls": list(settings.sysctls),
        "environments.tools": [environment.folder for environment in this.tools.values()],
        "files.links": [UV_VENV, TOOLS_VENV, UV],
        "files": _files(this),
        "units": _units(this),
        "units.system_services": system_units(settings),
        "files.marked": {
            "folders": [SYSTEMD, settings.paths.scripts],
            "named": list(_NAMED),
        },
        "environments": this.engine_question,
        "docker.images": this.images,
        "weights": WEIGHTS_SPEC,
        "records.generation": None,
        "records.persons": KEY,
        "machine.available": None,
    }
    if settings.firewall.enabled:
        asked["firewall"] = firewall.QUESTION
    if settings.fabric.netplan:
        asked["network.fabric"] = netplan.question(settings)
    return asked


def touched(this: Intended) -> dict[str, list[str]]:
    """Everything outside our own folders that a deploy may make or change, for its first note."""
    settings = this.plan.settings
    accounts = [*ours(this.plan), *people(settings)]
    places = [folder.path for folder in folders(settings)]
    return {
        "paths": found.parents([*this.paths, *places, UV, *TOOLS_CACHES]),
        "accounts": [account.name for account in accounts],
        "groups": list(
            dict.fromkeys([OPERATORS_GROUP, *(name for each in accounts for name in each.groups)])
        ),
        "sysctls": list(settings.sysctls),
    }


def _files(this: Intended) -> dict[str, Any]:
    settings = this.plan.settings
    files = this.all_files
    absent = absent_files(settings)
    secrets = [
        API_KEY,
        WEBUI_SECRETS,
        *(path for key in this.shared_keys for path in key.modes(this.plan.name)),
    ]
    secrets += [each.path for each in this.given_secrets]
    places = [folder.path for folder in folders(settings)]
    return {
        "paths": [*(file.path for file in files), *places, *absent, *secrets],
        "private": [*(file.path for file in files if file.private), *absent, *secrets],
        "absent": list(absent),
        "key": KEY,
        "known": {
            file.path: hashlib.sha256(file.text.encode()).hexdigest()
            for file in files
            if not file.private
        },
    }


def _units(this: Intended) -> dict[str, list[str]]:
    watching = (*this.watching, *this.boot_units)
    every = (
        *(*SYSTEM_UNITS, *this.model_units, *this.gateway_units, *this.webui_units),
        *watching,
        *stack.units(this.plan),
        # systemd may hold an older file of any of them, also of one that a timer starts.
        *this.unit_files,
    )
    # A pattern finds the jobs that systemd still has; it would look for each name that it has not.
    names = (*every, "lockstep-job-*.service")
    return {name: this.unit_programs.get(name, []) for name in names}
