"""Files, folders and links of the deploy, and the secrets that are made or brought there."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.files.managed_file import (
    API_KEY,
    CONFIGURATION,
    DOCKER_CONFIG,
    ENVIRONMENTS,
    GATEWAY_HOME,
    GATEWAY_KEYS,
    PROGRAMS,
    PROXY_ENVIRONMENT,
    SYSTEMD,
    TOOLS_ENVIRONMENT,
    TOOLS_VENV,
    UV_VENV,
    WEBUI_SECRETS,
    Folder,
    ManagedFile,
)
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.host.keys_shared_by_hosts import SharedKey
from lockstep.host.specs import UV
from lockstep.monitoring import stack
from lockstep.monitoring.alertmanager import credential_path
from lockstep.onhost.core import atomic_files
from lockstep.onhost.facts import files
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.fact_comparison import (
    ANY,
    Expectation,
    Facts,
    Kind,
    SubjectView,
    rows_to_mend,
)
from lockstep.system.base_files import absent_files
from lockstep.system.firewall import KEPT, RULES
from lockstep.system.folders import HUB_TOKEN, folders
from lockstep.system.tools import Environment
from lockstep.units import backup_peer
from lockstep.units.backup_unit import PASSWORD
from lockstep.units.gateway_unit import PAGE
from lockstep.units.models_json import MODELS
from lockstep.units.tls_unit import CADDYFILE, GIVEN, ROOT, authority_path

_SECRET = "0600 root:root"
#: The key with which a host seals contents for a deploy; each run has its own.
KEY = secrets.token_hex(32)
#: Path, earlier text or None, later text or None.
Difference = tuple[str, str | None, str | None]
#: The answer of the reader `files`; None: the host gave none.
Answer = Mapping[str, Mapping[str, Any] | None] | None

#: Secrets that are made on the host or brought there. No deploy removes them.
BROUGHT_OR_MADE = (HUB_TOKEN, WEBUI_SECRETS, GATEWAY_KEYS, PASSWORD)
#: Files that only some inventories need. A deploy removes those that its inventory no longer needs.
SOMETIMES_WANTED = (
    # The authority of Sparks, and what a host shows to others.
    f"{CONFIGURATION}/secrets/peer-*.pem",
    # Keys of clusters and of gateways, which an earlier version made.
    *(f"{CONFIGURATION}/secrets/{name}.key" for name in ("cluster-*", "gateway-peers")),
    authority_path("*"),
    *GIVEN.values(),
    CADDYFILE,
    ROOT,
    *stack.CONFIGURATIONS,
    credential_path("*"),
    API_KEY,
    # What the engines' build reads.
    f"{CONFIGURATION}/engine.json",
    *backup_peer.FILES,
    # A stale module would still be imported, because engines are found by their folder.
    f"{PROGRAMS}/lockstep/**/*.py",
)
#: Patterns of all files and folders ("…/") that any deploy may have made in the folders in which
#: diff and remove know each file of ours: records of generations list what units consist of alone.
#: Outside these folders, which are ours, a pattern makes no file ours. Inside them, a file without
#: a pattern counts as foreign and stays.
EVER_OURS = (
    *SOMETIMES_WANTED,
    *BROUGHT_OR_MADE,
    *(f"{CONFIGURATION}/{name}.json" for name in ("gateway", "served-weights", "weights")),
    *(MODELS, PAGE, f"{DOCKER_CONFIG}/config.json", RULES, KEPT),
    *(PROXY_ENVIRONMENT, TOOLS_ENVIRONMENT, f"{CONFIGURATION}/requirements-*.txt"),
    *(f"{DOCKER_CONFIG}/", f"{CONFIGURATION}/secrets/", f"{GATEWAY_HOME}/", f"{ENVIRONMENTS}/"),
    *(f"{PROGRAMS}/__main__.py", f"{PROGRAMS}/lockstep/**/"),
    # The remains of a write that was cut off.
    *(f"{folder}/**/{atomic_files.PREFIX}*" for folder in (CONFIGURATION, PROGRAMS)),
)

KINDS = {
    "file": Kind(files.read, "error", "deploy", scope="nothing", is_sealed=True),
    "file mode": Kind(files.read, "error", "deploy", scope="nothing"),
    "folder": Kind(files.read, "error", "deploy", scope="nothing"),
    "link": Kind(files.read, "warning", "deploy", scope="nothing"),
    "secret": Kind(files.read, "error", "deploy", scope="nothing"),
    # A key without an expected value is compared between the hosts.
    "shared key": Kind(files.read, "error", "deploy", part=True, is_sealed=True),
    "leftover": Kind(files.leftovers, "warning", "deploy", scope="odd"),
    "script": Kind(files.leftovers, "note", is_sealed=True),
    # The owner is unknown here, so people look at the file.
    "foreign file": Kind(files.leftovers, mend="ls -ldR {item}", scope="odd"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the questions to the readers, without the run's key."""
    settings = desired_state.plan.settings
    absent = absent_files(settings)
    kept_files = [KEPT] if settings.firewall.enabled else []
    return {
        files.leftovers: {
            "files": [*desired_state.paths, *secret_modes(desired_state)],
            "marked": [SYSTEMD, settings.paths.scripts],
            "named": list(SOMETIMES_WANTED),
            "scripts": settings.paths.scripts,
            "own": [PROGRAMS, CONFIGURATION],
            # A folder of the deploy's own may be empty.
            "allowed": [
                *(*kept_files, *absent, *BROUGHT_OR_MADE),
                *(f"{folder.path}/" for folder in folders(settings)),
            ],
            "inside": [TOOLS_VENV, UV_VENV],
        },
        files.read: {
            "paths": [
                *desired_state.paths,
                *(folder.path for folder in folders(settings)),
                *tool_links(desired_state.tool_environments),
                *absent,
                *(API_KEY, WEBUI_SECRETS, HUB_TOKEN, PASSWORD),
                *secret_modes(desired_state),
            ],
            "absent": list(absent),
            "certificates": desired_state.certificates,
            "authorities": [
                key.path for key in desired_state.shared_keys if key.certificates or key.public
            ],
        },
    }


def secret_modes(desired_state: DesiredState) -> dict[str, str]:
    """Return path → mode and owner of the host's secrets, without the hub's token."""
    webui = [WEBUI_SECRETS] if desired_state.plan.settings.webui.enabled else []
    keys = [API_KEY] if desired_state.key_users else []
    brought_paths = [secret.path for secret in desired_state.uploaded_secrets]
    modes = dict.fromkeys([*webui, *keys, *brought_paths], _SECRET)
    modes.pop(HUB_TOKEN, None)
    for key in desired_state.shared_keys:
        modes |= key.file_modes(desired_state.plan.name)
    return modes


def tool_links(environments: Mapping[str, Environment]) -> dict[str, str]:
    """Return the links to our own tools → their targets."""
    return {
        UV_VENV: environments["uv"].folder,
        TOOLS_VENV: environments["tools"].folder,
        UV: f"{UV_VENV}/bin/uv",
    }


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted files, folders, links and secrets."""
    yield from _file_expectations(desired_state.all_files, host_view.key.hex())
    yield from _folder_expectations(folders(desired_state.plan.settings))
    yield from link_expectations(tool_links(desired_state.tool_environments))
    modes = secret_modes(desired_state)
    yield from _secret_expectations(modes)
    if PASSWORD not in modes:
        # The first backup makes the password, which stays after the last backup.
        yield Expectation("secret", PASSWORD, _SECRET, if_there=True)


def _file_expectations(wanted_files: Iterable[ManagedFile], key: str) -> Iterator[Expectation]:
    for file in wanted_files:
        yield Expectation("file", file.path, seal(key, file.text.encode()))
        owner = f"{file.mode} {file.owner}:{file.group}"
        yield Expectation("file mode", file.path, owner, if_there=True)


def _folder_expectations(wanted_folders: Iterable[Folder]) -> Iterator[Expectation]:
    for folder in wanted_folders:
        yield Expectation("folder", folder.path, f"{folder.mode} {folder.owner}:{folder.group}")


def _secret_expectations(modes: Mapping[str, str]) -> Iterator[Expectation]:
    for path, mode in modes.items():
        yield Expectation("secret", path, mode)


def link_expectations(links: Mapping[str, str]) -> Iterator[Expectation]:
    """Yield where these links lead to."""
    for path, target in links.items():
        yield Expectation("link", path, target)


def file_facts(
    answer: Mapping[str, Mapping[str, Any] | None],
    shared_paths: Container[str] = (),
    absent: Container[str] = (),
) -> dict[str, dict[str, str]]:
    """Return the facts in the answer of the reader `files`.

    `shared_paths` are of shared keys, `absent` those at which nothing shall be.
    """
    facts: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for path, have in answer.items():
        if have is None:
            continue
        owner = f"{have['mode']} {have['owner']}:{have['group']}"
        link = have.get("target")
        other_content = f"link to {link}" if link else "no regular file"
        facts["file"][path] = have.get("seal") or other_content
        facts["file mode"][path] = owner
        facts["secret"][path] = owner if have["kind"] == "file" else have["kind"]
        if have["kind"] == "folder":
            facts["folder"][path] = owner
        if link:
            facts["link"][path] = link
        if path in absent:
            facts["leftover"][path] = ANY
        if path in shared_paths and "seal" in have:
            facts["shared key"][path] = have["seal"]
    return facts


def has_secret(answer: Answer, path: str) -> bool:
    """Tell whether a secret that a host makes for itself is there, for root alone."""
    return _has_secrets({path: _SECRET}, answer)


def whole_key_hash(key: SharedKey, host: str, answer: Answer) -> str | None:
    """Return a keyed hash of a shared key on a host; None where the host lacks a part of it."""
    return key.key_hash(answer) if _has_secrets(key.file_modes(host), answer) else None


def future_key_hash(key: SharedKey, host: str, answer: Answer) -> str | None:
    """Return a keyed hash of the key that a host will give; None where it makes a new one."""
    return whole_key_hash(key, host, answer) if key.private else key.key_hash(answer)


def _has_secrets(modes: Mapping[str, str], answer: Answer) -> bool:
    return not rows_to_mend(KINDS, _secret_expectations(modes), file_facts(answer or {}))


def shared_key_expectations(
    desired_state: DesiredState, facts: Mapping[str, Facts]
) -> Iterator[Expectation]:
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


@dataclass(frozen=True)
class Changes:
    """The files and folders to write and remove.

    Attributes:
        files: Files whose text, mode or owner differs.
        folders: Folders that are missing or have another mode or owner.
        remove: Paths that must go.
        differences: One for each of them; "" stands for the text of a private file.
    """

    files: tuple[ManagedFile, ...] = ()
    folders: tuple[Folder, ...] = ()
    remove: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.remove)


def file_changes(
    wanted_files: Sequence[ManagedFile],
    wanted_folders: Sequence[Folder],
    absent: Sequence[str],
    answer: Mapping[str, Mapping[str, Any] | None],
) -> Changes:
    """Return the changes of a deploy; `answer` is of the reader `files` under this run's key."""
    expectations_of_files = (
        *_file_expectations(wanted_files, KEY),
        *_folder_expectations(wanted_folders),
    )
    facts = file_facts(answer, absent=absent)
    rows = [(kind, row.item) for kind, row in rows_to_mend(KINDS, expectations_of_files, facts)]
    changed_paths = {path for _, path in rows}
    new_folders = tuple(folder for folder in wanted_folders if folder.path in changed_paths)
    new_files = tuple(file for file in wanted_files if file.path in changed_paths)
    removed_paths = tuple(path for path in absent if path in facts["leftover"])
    differences: list[Difference] = [
        (f"{folder.path}/ ({folder.mode} {folder.owner})", None, "") for folder in new_folders
    ]
    for file in new_files:
        have = answer[file.path]
        if file.private:
            differences.append((file.path, "" if have else None, ""))
        else:
            old_text = have["text"] if have else None
            is_same = ("file", file.path) not in rows
            differences.append((file.path, file.text if is_same else old_text, file.text))
    differences += [(path, (answer[path] or {})["text"] or "", None) for path in removed_paths]
    return Changes(new_files, new_folders, removed_paths, tuple(differences))
