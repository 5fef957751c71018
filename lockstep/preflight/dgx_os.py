"""Which DGX OS a host has, by the KEY="value" lines of /etc/dgx-release.

The factory's version never moves: each update from the Dashboard appends lines of its own, so the
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
    """The key of /etc/dgx-release whose last value is the version that the host has now."""
    return UPDATED if release.get(UPDATED) else FACTORY


def shown(release: Mapping[str, str]) -> str:
    """ "7.5.0 (7.2.3 from the factory)", for readers."""
    factory = release.get(FACTORY) or "unknown"
    if deciding(release) == FACTORY:
        return factory
    return f"{release[UPDATED]} ({factory} from the factory)"


def matches(version: str, wanted: str) -> bool:
    """Whether a version of DGX OS is one that the specifier (">=7.5") wants."""
    try:
        return Version(version) in SpecifierSet(wanted)
    except InvalidVersion:
        return False
