"""Parses the version of an engine."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version


def release(engine_version: str | None) -> Version | None:
    """The release a version belongs to ("0.19.2rc1.dev7+gabc" → 0.19.2), None where unknown."""
    try:
        return Version(Version(engine_version or "").base_version)
    except InvalidVersion:
        return None
