"""The result of a deploy on a host as one record; `generations` keeps it on the host.

Rolling out, rolling back, `lockstep gc` and `lockstep diff` agree on "now" and "before" because all
of them read these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from lockstep.core.digest import digest
from lockstep.files.managed_file import STATE, ManagedFile
from lockstep.inventory.settings import Settings
from lockstep.lock.pins import Pins

GENERATIONS = f"{STATE}/generations"
_DIGITS = 16


def lock_hash(pins: Pins) -> str:
    """16 hexadecimal digits of everything resolved, whichever hosts need it."""
    return digest(asdict(pins), _DIGITS)


def contents(
    settings: Settings,
    pins: Pins,
    *,
    engine_id: str,
    images: Iterable[str],
    weights: Mapping[str, Any],
    files: Iterable[ManagedFile],
) -> dict[str, Any]:
    """The record of one host, but for its number and date.

    Args:
        settings: The host's data.
        pins: What was resolved.
        engine_id: Name of the venv engine's environment, "" where no target needs one.
        images: "REPOSITORY@sha256:…" of every image of the host.
        weights: As `lockstep.host.specs.weights_spec` gives it.
        files: What model units are and read: the files of the stage "services".
    """
    found = {
        "engine": {"folder": settings.paths.engines, "id": engine_id or None},
        "images": sorted(images),
        "weights": {
            "cache_dir": weights["cache_dir"],
            "revisions": sorted(revisions(weights)),
        },
        "files": [
            {key: getattr(file, key) for key in ("path", "text", "mode", "owner", "group")}
            for file in files
        ],
    }
    return {**found, "digest": digest(found, _DIGITS), "lock": lock_hash(pins)}


def revisions(weights: Mapping[str, Any]) -> set[str]:
    """ "ORG/NAME@COMMIT" of every repository that is served or borrowed from."""
    return {
        f"{each['model']}@{each['revision']}"
        for repository in weights["repositories"]
        for each in (repository, *repository.get("borrow", ()))
    }
