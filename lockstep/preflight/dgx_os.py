"""The DGX OS of a host, by the KEY="value" lines of /etc/dgx-release.

The factory's version never changes: each update from the Dashboard appends lines of its own, so the
last of them counts. Some updates append none (`dgx-spark-ota-update-meta` 26.04.1), so the version
is the least that a host has (facts of a Spark, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

FACTORY = "DGX_SWBUILD_VERSION"
UPDATED = "DGX_OTA_VERSION"


def deciding(release: Mapping[str, str]) -> str:
    """Return the key of /etc/dgx-release whose last value is the host's present version."""
    return UPDATED if release.get(UPDATED) else FACTORY


def release_text(release: Mapping[str, str]) -> str:
    """Return text for people: "7.5.0 (7.2.3 from the factory)"."""
    factory = release.get(FACTORY) or "unknown"
    if deciding(release) == FACTORY:
        return factory
    return f"{release[UPDATED]} ({factory} from the factory)"


def matches(version: str, wanted_version: str) -> bool:
    """Tell whether a version of DGX OS meets the specifier (">=7.5")."""
    try:
        return Version(version) in SpecifierSet(wanted_version)
    except InvalidVersion:
        return False
