"""The folders of the deploy on a host, and the facts in its unit files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from lockstep.files.managed_file import (
    CONFIGURATION,
    ENVIRONMENTS,
    GATEWAY_ACCOUNT,
    GATEWAY_HOME,
    HOME,
    STATE,
    SYSTEMD,
    Folder,
    ManagedFile,
)
from lockstep.inventory.settings import Settings
from lockstep.onhost.systemd.outdated_units import written_restart_key

# The operator puts it there, readable by the service account, for gated repositories.
HUB_TOKEN = f"{CONFIGURATION}/hub-token"

# Manifests and compressed layers by hash, for the peers that lack them.
IMAGE_STORE = "/var/cache/lockstep/layers"


def engine_store(settings: Settings) -> str:
    """Return the folder of wheels by hash and git histories by commit, for builds and peers."""
    return f"{settings.paths.engines}/store"


def folders(settings: Settings) -> list[Folder]:
    """Return the folders with mode and owner, parents first."""
    user = settings.service_user
    paths = settings.paths

    def owned_folder(path: str, mode: str = "0755") -> Folder:
        return Folder(path, mode=mode, owner=user, group=user)

    return [
        Folder(CONFIGURATION),
        Folder(f"{CONFIGURATION}/secrets", mode="0700"),
        Folder(GATEWAY_HOME, mode="0750", group=GATEWAY_ACCOUNT),
        Folder(ENVIRONMENTS),
        Folder("/var/log/lockstep"),
        Folder("/var/cache/lockstep"),
        Folder(IMAGE_STORE),
        Folder(STATE, mode="0700"),
        owned_folder(HOME, "0750"),
        Folder(paths.scripts),
        Folder(f"{paths.scripts}/llm"),
        Folder(f"{paths.scripts}/vllm"),
        Folder(paths.models),
        owned_folder(paths.hub_cache),
        owned_folder(f"{paths.hub_cache}/hub"),
        owned_folder(paths.engines),
    ]


def model_units(files: Sequence[ManagedFile]) -> list[str]:
    """Return the names of the model units among managed files, fallbacks included."""
    return [
        PurePosixPath(file.path).name
        for file in files
        if file.stage == "services" and file.check == "unit"
    ]


def wanted_restart_key(files: Sequence[ManagedFile], unit: str) -> str:
    """Return the restart key in a unit's file, "" without one."""
    text = next((file.text for file in files if file.path == f"{SYSTEMD}/{unit}"), "")
    return written_restart_key(text)
