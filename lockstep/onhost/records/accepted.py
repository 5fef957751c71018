"""Accepted speeds of this host's targets, which later deploys and the watch compare with."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core import atomic, layout


def load(paths: layout.Paths) -> dict[str, Any]:
    """Target → accepted result; {} where there is none that can be read."""
    found = atomic.read_json(paths.accepted)
    return found if isinstance(found, dict) else {}


def save(paths: layout.Paths, accepted: dict[str, Any]) -> None:
    """Replace them; only root can read them."""
    atomic.write_json(paths.accepted, accepted, mode=0o600)
