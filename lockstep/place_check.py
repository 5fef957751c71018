"""Folders and files in inventory data: those of the system are nobody's to give away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from lockstep.errors import InventoryError
from lockstep.settings import Paths, Settings

#: A full path, normalised, of characters that mean nothing to a shell, systemd, Docker or sudo.
PATH = r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.@+-]+)+"
# Ubuntu 24.04's own folders (file-hierarchy(7)); nothing of an inventory lies in them.
_SYSTEM = frozenset(
    (
        *("bin", "boot", "cdrom", "dev", "etc", "lib", "lib32", "lib64", "lost+found", "proc"),
        *("root", "run", "sbin", "snap", "sys", "tmp", "usr", "var"),
    )
)
# Folders of others: how deep a folder of one's own begins there ("/opt/NAME", "/home/USER/NAME").
_DEPTH = {"home": 3, "media": 2, "mnt": 2, "opt": 2, "srv": 2}
_LOCK = ".lock.yaml"


def check_places(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse folders, launchers, scripts and a lock that would overwrite what is somebody else's.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    paths, file = settings.paths, where.get("paths", settings.name)
    for key in ("scripts", "models", "engines"):
        _check_folder(f"paths.{key}", getattr(paths, key), file)
    _check_apart(paths, file)
    for name, target in settings.targets.items():
        file = where.get("targets", settings.name)
        for key, script in (
            ("launcher", target.launcher),
            *((f"scripts[{index}]", script) for index, script in enumerate(target.scripts)),
        ):
            if script is not None:
                _check_script(f"targets.{name}.{key}", script, paths, file)
    lock = settings.lock
    if lock is not None and not (
        PurePosixPath(lock).name.endswith(_LOCK)
        and len(PurePosixPath(lock).name) > len(_LOCK)
        and ".." not in PurePosixPath(lock).parts
        and lock.isprintable()
    ):
        raise InventoryError(
            "lock is not the name of a lock file",
            where=where.get("lock", settings.name),
            found=repr(lock)[:60],
            allowed=f"a name that ends with {_LOCK}, from the repository or with a full path",
        )


def _check_folder(key: str, path: str, file: str) -> None:
    if not re.fullmatch(PATH, path):
        raise InventoryError(
            f"{key} is not a folder's full path",
            where=file,
            found=repr(path)[:80],
            allowed="/NAME/NAME of letters, digits and '_.@+-', without '..', '//' or '/' at the "
            "end",
        )
    first, *rest = path[1:].split("/")
    if first in _SYSTEM or 1 + len(rest) < _DEPTH.get(first, 1):
        raise InventoryError(
            f"{key} is a folder of the system or of others",
            where=file,
            found=repr(path)[:80],
            allowed="a folder of its own, for example /data/NAME, /opt/NAME or /home/USER/NAME",
            remedy="Owner and mode of that folder are the deploy's to set. Give it one of its own.",
        )


def _check_apart(paths: Paths, file: str) -> None:
    """The service account owns two of these trees; nothing that others trust may lie there."""
    owned = {"paths.engines": paths.engines, "paths.models": paths.hub_cache}
    places = {key: getattr(paths, key.removeprefix("paths.")) for key in (*owned, "paths.scripts")}
    for key, path in places.items():
        for other, tree in owned.items():
            if key != other and f"{path}/".startswith(f"{tree}/"):
                raise InventoryError(
                    f"{key} lies in a folder that the engines' account owns",
                    where=file,
                    found=f"{path!r} in {tree!r} of {other}",
                    remedy="Give each of paths.scripts, paths.models and paths.engines a folder of "
                    "its own, none in another.",
                )


def _check_script(key: str, path: str, paths: Paths, file: str) -> None:
    folders = (f"{paths.scripts}/llm", f"{paths.scripts}/vllm")
    if not path.startswith("/"):
        raise InventoryError(f"{key} needs a full path", where=file, found=repr(path)[:80])
    inside = path.startswith(f"{paths.scripts}/") and re.fullmatch(PATH, path)
    if not inside or path in folders:
        raise InventoryError(
            f"{key} is not a file under paths.scripts",
            where=file,
            found=repr(path)[:80],
            allowed=f"{folders[0]}/NAME.sh",
            remedy="The deploy replaces this file. Move it there, or set paths.scripts.",
        )
