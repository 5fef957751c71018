"""Accepted speeds of this host's models, the reference for later deploys and the watch."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core import atomic_files, layout


def load(paths: layout.Paths) -> dict[str, Any]:
    """Return the accepted result of each model; {} without a readable record."""
    document = atomic_files.read_json(paths.accepted_speeds)
    return document if isinstance(document, dict) else {}


def save(paths: layout.Paths, accepted_speeds: dict[str, Any]) -> None:
    """Replace the accepted speeds; only root can read them."""
    atomic_files.write_json(paths.accepted_speeds, accepted_speeds, mode=0o600)
