"""The name of one generation of the venv engine: a hash of everything that is in it."""

from __future__ import annotations

from lockstep.core.digest import digest
from lockstep.inventory.settings import Settings
from lockstep.lock.packages import BUILD, ENGINE, engine_repositories, locked, precompiled
from lockstep.lock.pins import Pins, held

# 48 bits: two generations of one host that share a name are not to be expected.
DIGITS = 12


def engine_id(settings: Settings, pins: Pins) -> str:
    """12 hexadecimal digits that change with anything inside the engine's environment.

    The indexes and mirrors it comes from are left out: moving a mirror changes no byte.
    ResolveError where ``pins`` lack a requirement or a repository of it.
    """
    engine = settings.engine
    wheel = precompiled(settings, pins)
    contents = {
        "architecture": settings.expected.architecture,
        "python": settings.python,
        "packages": _hashes(settings, pins, ENGINE),
        "commits": {
            repository.url: repository.commit or held(pins.git, repository.url).commit
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
    """Name, version and SHA-256 of every wheel of an environment."""
    return [
        (wheel.name, wheel.version, wheel.sha256) for wheel in locked(settings, pins, environment)
    ]
