"""Where things of the deploy itself are on a host, and which step writes which file."""

from __future__ import annotations

from typing import Literal

from lockstep.inventory import HostPlan
from lockstep.managed import CONFIGURATION, HOME, SYSTEMD, ManagedFile
from lockstep.settings import Settings
from lockstep.tree import Folder

HUB_TOKEN = f"{CONFIGURATION}/secrets/hub-token"
Stage = Literal["base", "services", "switch", "webui"]


def folders(settings: Settings) -> list[Folder]:
    """Folders with mode and owner, parents first."""
    user = settings.service_user
    paths = settings.paths

    def owned(path: str, mode: str = "0755") -> Folder:
        return Folder(path, mode=mode, owner=user, group=user)

    return [
        Folder(CONFIGURATION),
        Folder(f"{CONFIGURATION}/secrets", mode="0700"),
        Folder("/var/log/lockstep"),
        Folder("/var/cache/lockstep"),
        owned(HOME, "0750"),
        Folder(paths.scripts),
        Folder(f"{paths.scripts}/llm"),
        Folder(f"{paths.scripts}/vllm"),
        Folder(paths.models),
        owned(paths.hub_cache),
        owned(f"{paths.hub_cache}/hub"),
        owned(paths.engines),
    ]


def stage_of(file: ManagedFile, plan: HostPlan) -> Stage:
    """The step of the deploy that writes a file.

    Launchers and model units wait for the engines' versions; what only base needs does not.
    """
    if file.path == f"{SYSTEMD}/{plan.settings.webui.unit}.service":
        return "webui"
    engine = [f"{SYSTEMD}/{target.unit}" for target in plan.targets]
    engine += [target.data.launcher for target in plan.targets if target.data.launcher]
    if file.path in engine:
        return "services"
    aliases = [path for target in plan.targets for path in target.data.scripts]
    scripts = f"{plan.settings.paths.scripts}/"
    if file.path in aliases or file.path.startswith((scripts, "/etc/sudoers.d/")):
        return "switch"
    return "switch" if file.path == f"{CONFIGURATION}/targets.json" else "base"
