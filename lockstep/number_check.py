"""Numbers in inventory data: ports, times, sizes and versions that have a range."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from lockstep.errors import InventoryError
from lockstep.images import PLATFORMS
from lockstep.settings import Expected, Settings

#: Below, a port needs a right that no engine and no web interface has here.
LEAST_PORT = 1024
_DAY_S = 86400


def check_numbers(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse numbers out of range.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    file = where.get("targets", settings.name)
    for name, target in settings.targets.items():
        for key, port in (("port", target.port), ("engine_port", target.engine_port)):
            if port is not None:
                check_port(f"targets.{name}.{key}", port, file)
        if not 1 <= target.start_timeout_s <= _DAY_S:
            raise InventoryError(
                f"targets.{name}.start_timeout_s is no time for a start",
                where=file,
                found=f"{target.start_timeout_s} s",
                allowed=f"1 to {_DAY_S} s",
            )
    check_port("webui.port", settings.webui.port, where.get("webui", settings.name))
    check_port("copy_port", settings.copy_port, where.get("copy_port", settings.name))
    disk = settings.engine.disk_gib
    _check_size("engine.disk_gib", disk, where.get("engine", settings.name))
    _check_expected(settings.expected, where.get("expected", settings.name))


def check_port(key: str, port: int, file: str) -> None:
    """Refuse what is no port for an engine, a web interface or copying."""
    if not LEAST_PORT <= port <= 65535:
        raise InventoryError(
            f"{key} is not a port for it",
            where=file,
            found=str(port),
            allowed=f"{LEAST_PORT} to 65535",
        )


def _check_size(key: str, size: float, file: str) -> None:
    if not (math.isfinite(size) and size >= 0):
        raise InventoryError(f"{key} is no size", where=file, found=str(size), allowed="0 or more")


def _check_expected(expected: Expected, file: str) -> None:
    for key in ("memory_gib", "free_disk_gib", "clock_skew_s"):
        _check_size(f"expected.{key}", getattr(expected, key), file)
    if expected.architecture not in PLATFORMS:
        raise InventoryError(
            "expected.architecture is not known",
            where=file,
            found=repr(expected.architecture)[:60],
            allowed=", ".join(PLATFORMS),
        )
    try:
        SpecifierSet(expected.dgx_os)
    except InvalidSpecifier as fault:
        raise InventoryError(
            "expected.dgx_os is not a version specifier",
            where=file,
            found=repr(expected.dgx_os)[:60],
            allowed='">=7", or "" for any',
        ) from fault
    for key in ("cuda_toolkit", "compute_capability"):
        value = getattr(expected, key)
        if not re.fullmatch(r"\d+(?:\.\d+)*", value):
            raise InventoryError(
                f"expected.{key} is not a version",
                where=file,
                found=repr(value)[:60],
                allowed='numbers with dots between them ("13.0")',
            )
