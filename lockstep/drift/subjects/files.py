"""Drift of the deploy's own files, folders and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Facts, Kind, Row, Seen
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
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.host.specs import UV
from lockstep.onhost.facts import files, records
from lockstep.onhost.facts.reading import seal
from lockstep.system.base_files import absent_files
from lockstep.system.firewall import KEPT
from lockstep.system.folders import HUB_TOKEN, folders
from lockstep.units.backup_unit import PASSWORD

_ENTRIES = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_EMAIL", "WEBUI_ADMIN_PASSWORD")
_SECRET = "0600 root:root"
#: The kind of the one fact that matters on a host to which nobody has deployed yet.
DEPLOYED = "Lockstep"


def _token_mode(row: Row) -> tuple[str, ...]:
    """Let the service account read the token, and nobody else."""
    mode, _, owner = (row.expected or "").partition(" ")
    return ("sh", "-c", 'chown "$1" "$0" && chmod "$2" "$0"', row.item, owner, mode)


KINDS = {
    DEPLOYED: Kind(records.deployed, "error", "deploy", scope="nothing"),
    "file": Kind(files.managed, "error", "deploy", scope="nothing", sealed=True),
    "file mode": Kind(files.managed, "error", "deploy", scope="nothing"),
    "folder": Kind(files.managed, "error", "deploy", scope="nothing"),
    "link": Kind(files.managed, "warning", "deploy", scope="nothing"),
    "leftover": Kind(files.leftovers, "warning", "deploy", scope="odd"),
    "script": Kind(files.leftovers, "note", sealed=True),
    # Whose it is, nobody here knows: it is looked at.
    "foreign file": Kind(files.leftovers, mend="ls -ldR {item}", scope="odd"),
    "secret": Kind(files.secrets, "error", "deploy", scope="nothing"),
    # The next deploy makes a new file.
    "secret entry": Kind(files.secrets, "error", mend="rm {first}", scope="nothing"),
    # One that no host is expected to have as another has it is compared.
    "shared key": Kind(files.secrets, "error", "deploy", part=True, sealed=True),
    "hub token": Kind(files.secrets, "note", sealed=True),
    "hub token mode": Kind(files.secrets, "error", mend=_token_mode, scope="nothing"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    settings = this.plan.settings
    paths = this.paths
    places = [folder.path for folder in folders(settings)]
    entries, others = _secrets(this)
    made = [KEPT] if settings.firewall.enabled else []
    inside = [TOOLS_VENV, UV_VENV]
    if this.engine_spec:
        inside.append(f"{this.engine_spec['home']}/venv")
    return {
        files.managed: {"files": paths, "folders": places, "links": [UV, UV_VENV, TOOLS_VENV]},
        files.leftovers: {
            "files": paths,
            "absent": list(absent_files(settings)),
            "marked": [SYSTEMD, settings.paths.scripts],
            "scripts": settings.paths.scripts,
            "own": [PROGRAMS, CONFIGURATION],
            # A folder of the deploy's own may be empty.
            "allowed": [
                *(*entries, *others, *made, HUB_TOKEN, GATEWAY_KEYS, PASSWORD),
                *(f"{each}/" for each in places),
            ],
            "inside": inside,
        },
        files.secrets: {
            "secrets": [*entries, *others, PASSWORD],
            "entries": entries,
            "shared": [key.path for key in this.shared_keys],
            "token": HUB_TOKEN,
        },
    }


def _secrets(this: Intended) -> tuple[list[str], list[str]]:
    """Files of secrets with named entries, and others for root alone."""
    entries = [WEBUI_SECRETS] if this.plan.settings.webui.enabled else []
    keys = [API_KEY] if this.key_users else []
    given = [each.path for each in this.given_secrets if each.path != HUB_TOKEN]
    return entries, [*keys, *_shared_modes(this), *given]


def _shared_modes(this: Intended) -> dict[str, str]:
    """Path → mode of what the host has of the keys that it shares."""
    every = (key.modes(this.plan.name) for key in this.shared_keys)
    return {path: mode for modes in every for path, mode in modes.items()}


def is_deployed_to(facts: Facts) -> bool:
    """Whether a deploy has ended well there. Files alone may be those of one that was cut off."""
    return "number" in facts.get("deployed", {})


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for file in this.all_files:
        yield Expectation("file", file.path, seal(seen.key.hex(), file.text.encode()))
        owner = f"{file.mode} {file.owner}:{file.group}"
        yield Expectation("file mode", file.path, owner, if_there=True)
    settings = this.plan.settings
    for folder in folders(settings):
        owner = f"{folder.mode} {folder.owner}:{folder.group}"
        yield Expectation("folder", folder.path, owner)
    yield Expectation("link", UV, f"{UV_VENV}/bin/uv")
    for link, venv in ((UV_VENV, "uv"), (TOOLS_VENV, "tools")):
        yield Expectation("link", link, this.tools[venv].folder)
    entries, others = _secrets(this)
    modes = _shared_modes(this)
    for path in (*entries, *others):
        yield Expectation("secret", path, f"{modes[path]} root:root" if path in modes else _SECRET)
    if PASSWORD not in others:
        # The first backup makes it, and it outlives the last.
        yield Expectation("secret", PASSWORD, _SECRET, if_there=True)
    for path in entries:
        for name in _ENTRIES:
            yield Expectation("secret entry", f"{path} {name}", "set")
    readable = f"0640 root:{settings.service_user}"
    given = any(each.path == HUB_TOKEN for each in this.given_secrets)
    yield Expectation("hub token mode", HUB_TOKEN, readable, if_there=not given)


def shared_keys(this: Intended, facts: Mapping[str, Facts]) -> Iterator[Expectation]:
    """That a host has the keys that it shares as the other hosts have them.

    The deploy carries a key from the first host to the others: the first one counts that shows
    it. One that devices of people know is replaced by nobody: it is only compared. That a key is
    missing, `expected` asks. `facts` are of all hosts that answered, by name.
    """
    for key in this.shared_keys:
        if key.announcement:
            continue
        found = (facts.get(name, {}).get("shared key", {}) for name in key.hosts)
        first = next((keys[key.path] for keys in found if key.path in keys), None)
        if first is not None:
            yield Expectation("shared key", key.path, first, if_there=True)
