"""The engines that Lockstep runs, one module of this folder each; nothing else lists them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from lockstep.onhost.engines.base import CommandGuard, Engine, Sizes
from lockstep.onhost.engines.engine_counters import Counters
from lockstep.onhost.engines.engine_parser import EngineUnavailable

_FOUND = [import_module(f"{__name__}.{module_info.name}") for module_info in iter_modules(__path__)]

#: Name in recipes → engine.
ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in _FOUND if hasattr(module, "ENGINE")
}


def counters(page: str) -> Counters | None:
    """Read an engine's Prometheus page; return None if it is no engine's."""
    read = (engine.metrics.parse_page(page) for engine in ENGINES.values())
    return next((engine_counters for engine_counters in read if engine_counters), None)


__all__ = [
    "ENGINES",
    "CommandGuard",
    "Counters",
    "Engine",
    "EngineUnavailable",
    "Sizes",
    "counters",
]
