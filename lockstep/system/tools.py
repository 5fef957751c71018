"""The environments of our own tools on a host: uv, and the packages that our programs import.

Each has a folder named by its content, and a link is moved to the one in use. So an older lock
finds its environment again, without a download.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from lockstep.core.digest import digest
from lockstep.files.managed_file import CONFIGURATION, ENVIRONMENTS
from lockstep.inventory.settings import Settings
from lockstep.lock.engine_id import DIGITS
from lockstep.lock.packages import TOOLS, UV, locked_wheels
from lockstep.lock.pins import Pins, WheelPin


@dataclass(frozen=True)
class Environment:
    """An environment of our own tools on a host.

    Attributes:
        folder: Its path, named by a hash of its content.
        requirements: File on the host that names every package with version and hash.
        text: Contents of that file.
        versions: Package → version.
    """

    folder: str
    requirements: str
    text: str
    versions: Mapping[str, str]


def tool_environments(settings: Settings, pins: Pins) -> dict[str, Environment]:
    """Return `UV` and `TOOLS` → the environment, for those that the host has.

    Raises:
        ResolveError: an environment is not resolved.
    """
    environments = {}
    for name in (UV, TOOLS):
        wheels = locked_wheels(settings, pins, name)
        if wheels:
            contents = [settings.python, [(wheel.file, wheel.sha256) for wheel in wheels]]
            environments[name] = Environment(
                f"{ENVIRONMENTS}/{name}-{digest(contents, DIGITS)}",
                f"{CONFIGURATION}/requirements-{name}.txt",
                requirements_text(wheels),
                {wheel.name: wheel.version for wheel in wheels},
            )
    return environments


def requirements_text(wheels: tuple[WheelPin, ...]) -> str:
    """Return a requirements file that accepts these wheels and no other file."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels
    )


def same_version(first: str | None, second: str) -> bool:
    """Tell whether two spellings mean one version: wheels say 2025.09.01, and uv 2025.9.1."""
    if first == second or first is None:
        return first == second
    try:
        return Version(first) == Version(second)
    except InvalidVersion:
        return False
