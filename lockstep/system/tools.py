"""The environments of our own tools on a host: uv, and what our programs import.

Each has a folder named by what is in it, and a link is moved to the one in use: an older lock finds
its own again, without a download.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from lockstep.core.digest import digest
from lockstep.files.managed_file import CONFIGURATION, ENVIRONMENTS
from lockstep.inventory.settings import Settings
from lockstep.lock.engine_id import DIGITS
from lockstep.lock.packages import TOOLS, UV, locked
from lockstep.lock.pins import Pins, WheelPin


@dataclass(frozen=True)
class Environment:
    """One environment of our own tools on a host.

    Attributes:
        folder: Where it is, named by a hash of what is in it.
        requirements: File on the host that names every package with version and hash.
        text: Contents of that file.
        versions: Package → version.
    """

    folder: str
    requirements: str
    text: str
    versions: Mapping[str, str]


def tool_environments(settings: Settings, pins: Pins) -> dict[str, Environment]:
    """`UV` and `TOOLS` → the environment, for those that the host has.

    Raises:
        ResolveError: one is not resolved.
    """
    found = {}
    for name in (UV, TOOLS):
        wheels = locked(settings, pins, name)
        if wheels:
            contents = [settings.python, [(wheel.file, wheel.sha256) for wheel in wheels]]
            found[name] = Environment(
                f"{ENVIRONMENTS}/{name}-{digest(contents, DIGITS)}",
                f"{CONFIGURATION}/requirements-{name}.txt",
                requirements_text(wheels),
                {wheel.name: wheel.version for wheel in wheels},
            )
    return found


def requirements_text(wheels: tuple[WheelPin, ...]) -> str:
    """A requirements file that accepts these wheels and no other file."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels
    )


def same_version(one: str | None, other: str) -> bool:
    """Whether two spellings mean one version: wheels say 2025.09.01 where uv says 2025.9.1."""
    if one == other or one is None:
        return one == other
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False
