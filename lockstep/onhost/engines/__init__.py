"""The engines that Lockstep runs: one module of this folder each, and nothing else lists them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from lockstep.onhost.engines.base import Engine, Guard, Sizes
from lockstep.onhost.engines.metrics import Counters
from lockstep.onhost.engines.parser import Unanswered

_FOUND = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]

#: Name in recipes → engine.
ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in _FOUND if hasattr(module, "ENGINE")
}


def counters(page: str) -> Counters | None:
    """What an engine's Prometheus page says; None when it is no engine's."""
    read = (engine.metrics.read(page) for engine in ENGINES.values())
    return next((found for found in read if found), None)


__all__ = ["ENGINES", "Counters", "Engine", "Guard", "Sizes", "Unanswered", "counters"]
