"""Drift of the deploy's own files, folders and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    GATEWAY_KEYS,
    PROGRAMS,
    SYSTEMD,
    TOOLS_VENV,
    UV_VENV,
    WEBUI_SECRETS,
)
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import UV
from lockstep.onhost.facts import deploy_records, files
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.fact_comparison import DriftRow, Expectation, Facts, Kind, SubjectView
from lockstep.system.base_files import absent_files
from lockstep.system.firewall import KEPT
from lockstep.system.folders import HUB_TOKEN, folders
from lockstep.units.backup_unit import PASSWORD

_ENTRIES = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_EMAIL", "WEBUI_ADMIN_PASSWORD")
_SECRET = "0600 root:root"
#: The kind of the one fact that matters on a host without a deploy.
DEPLOYED = "Lockstep"


def _token_mode(row: DriftRow) -> tuple[str, ...]:
    """Return the command that lets only the service account read the token."""
    mode, _, owner = (row.expected or "").partition(" ")
    return ("sh", "-c", 'chown "$1" "$0" && chmod "$2" "$0"', row.item, owner, mode)


KINDS = {
    DEPLOYED: Kind(deploy_records.deployed_facts, "error", "deploy", scope="nothing"),
    "file": Kind(files.managed_files, "error", "deploy", scope="nothing", is_sealed=True),
    "file mode": Kind(files.managed_files, "error", "deploy", scope="nothing"),
    "folder": Kind(files.managed_files, "error", "deploy", scope="nothing"),
    "link": Kind(files.managed_files, "warning", "deploy", scope="nothing"),
    "leftover": Kind(files.leftovers, "warning", "deploy", scope="odd"),
    "script": Kind(files.leftovers, "note", is_sealed=True),
    # The owner is unknown here, so people look at the file.
    "foreign file": Kind(files.leftovers, mend="ls -ldR {item}", scope="odd"),
    "secret": Kind(files.secrets, "error", "deploy", scope="nothing"),
    # The next deploy makes a new file.
    "secret entry": Kind(files.secrets, "error", mend="rm {first}", scope="nothing"),
    # A key without an expected value is compared between the hosts.
    "shared key": Kind(files.secrets, "error", "deploy", part=True, is_sealed=True),
    "hub token": Kind(files.secrets, "note", is_sealed=True),
    "hub token mode": Kind(files.secrets, "error", mend=_token_mode, scope="nothing"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    settings = desired_state.plan.settings
    paths = desired_state.paths
    places = [folder.path for folder in folders(settings)]
    entries, other_paths = _secrets(desired_state)
    kept_files = [KEPT] if settings.firewall.enabled else []
    inside = [TOOLS_VENV, UV_VENV]
    if desired_state.engine_spec:
        inside.append(f"{desired_state.engine_spec['home']}/venv")
    return {
        files.managed_files: {
            "files": paths,
            "folders": places,
            "links": [UV, UV_VENV, TOOLS_VENV],
        },
        files.leftovers: {
            "files": paths,
            "absent": list(absent_files(settings)),
            "marked": [SYSTEMD, settings.paths.scripts],
            "scripts": settings.paths.scripts,
            "own": [PROGRAMS, CONFIGURATION],
            # A folder of the deploy's own may be empty.
            "allowed": [
                *(*entries, *other_paths, *kept_files, HUB_TOKEN, GATEWAY_KEYS, PASSWORD),
                *(f"{place}/" for place in places),
            ],
            "inside": inside,
        },
        files.secrets: {
            "secrets": [*entries, *other_paths, PASSWORD],
            "entries": entries,
            "shared": [key.path for key in desired_state.shared_keys],
            "certificates": desired_state.certificates,
            "token": HUB_TOKEN,
        },
    }


def _secrets(desired_state: DesiredState) -> tuple[list[str], list[str]]:
    """Return the files of secrets with named entries, and other files for root alone."""
    entries = [WEBUI_SECRETS] if desired_state.plan.settings.webui.enabled else []
    keys = [API_KEY] if desired_state.key_users else []
    given_paths = [
        secret.path for secret in desired_state.uploaded_secrets if secret.path != HUB_TOKEN
    ]
    return entries, [*keys, *_shared_modes(desired_state), *given_paths]


def _shared_modes(desired_state: DesiredState) -> dict[str, str]:
    """Return the modes by path of the host's parts of the keys that hosts share."""
    every = (key.file_modes(desired_state.plan.name) for key in desired_state.shared_keys)
    return {path: mode for modes in every for path, mode in modes.items()}


def is_deployed_to(facts: Facts) -> bool:
    """Tell whether a deploy ended well there; files alone may come from one that was cut off."""
    return "number" in facts.get("deployed", {})


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    for file in desired_state.all_files:
        yield Expectation("file", file.path, seal(host_view.key.hex(), file.text.encode()))
        owner = f"{file.mode} {file.owner}:{file.group}"
        yield Expectation("file mode", file.path, owner, if_there=True)
    settings = desired_state.plan.settings
    for folder in folders(settings):
        owner = f"{folder.mode} {folder.owner}:{folder.group}"
        yield Expectation("folder", folder.path, owner)
    yield Expectation("link", UV, f"{UV_VENV}/bin/uv")
    for link, venv in ((UV_VENV, "uv"), (TOOLS_VENV, "tools")):
        yield Expectation("link", link, desired_state.tool_environments[venv].folder)
    entries, other_paths = _secrets(desired_state)
    modes = _shared_modes(desired_state)
    for path in (*entries, *other_paths):
        yield Expectation("secret", path, f"{modes[path]} root:root" if path in modes else _SECRET)
    if PASSWORD not in other_paths:
        # The first backup makes the password, which stays after the last backup.
        yield Expectation("secret", PASSWORD, _SECRET, if_there=True)
    for path in entries:
        for name in _ENTRIES:
            yield Expectation("secret entry", f"{path} {name}", "set")
    readable = f"0640 root:{settings.service_user}"
    is_given = any(secret.path == HUB_TOKEN for secret in desired_state.uploaded_secrets)
    yield Expectation("hub token mode", HUB_TOKEN, readable, if_there=not is_given)


def shared_keys(desired_state: DesiredState, facts: Mapping[str, Facts]) -> Iterator[Expectation]:
    """Yield the expectation that a host's shared keys equal those of the other hosts.

    The deploy carries a key from the first host to the others, so the first host that shows the key
    counts. A key that people's devices know is replaced by nobody and only compared. `expectations`
    covers missing keys. `facts` are those of all hosts that answered, by name.
    """
    for key in desired_state.shared_keys:
        if key.announcement:
            continue
        key_facts = (facts.get(name, {}).get("shared key", {}) for name in key.hosts)
        first = next((keys[key.path] for keys in key_facts if key.path in keys), None)
        if first is not None:
            yield Expectation("shared key", key.path, first, if_there=True)
