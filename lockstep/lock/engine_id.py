"""The name of a venv engine: a hash of everything that is in it."""

from __future__ import annotations

from lockstep.core.digest import digest
from lockstep.inventory.settings import Settings
from lockstep.lock.packages import (
    BUILD,
    ENGINE,
    engine_repositories,
    locked_wheels,
    precompiled_pin,
)
from lockstep.lock.pins import Pins, entry_of

# 48 bits: two engines of one host are not expected to get the same name.
DIGITS = 12


def engine_id(settings: Settings, pins: Pins) -> str:
    """Return 12 hexadecimal digits that change with anything inside the engine's environment.

    Indexes and mirrors are left out, because moving a mirror changes no byte. ResolveError where
    ``pins`` lack a requirement or a repository of the engine.
    """
    engine = settings.engine
    wheel = precompiled_pin(settings, pins)
    contents = {
        "architecture": settings.expected.architecture,
        "python": settings.python,
        "packages": _hashes(settings, pins, ENGINE),
        "commits": {
            repository.url: repository.commit or entry_of(pins.git, repository.url).commit
            for repository in engine_repositories(settings)
        },
        "build": {
            "precompiled": wheel.sha256 if wheel else None,
            "environment": dict(engine.build_environment),
        }
        if engine.git
        else {},
        "built_with": _hashes(settings, pins, BUILD),
    }
    return digest(contents, DIGITS)


def _hashes(settings: Settings, pins: Pins, environment: str) -> list[tuple[str, str, str]]:
    """Return name, version and SHA-256 of every wheel of an environment."""
    return [
        (wheel.name, wheel.version, wheel.sha256)
        for wheel in locked_wheels(settings, pins, environment)
    ]
