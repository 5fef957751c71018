"""The models that run now."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.engine import openai_api
from lockstep.onhost.systemd import units

_ANSWER_S = 3.0


def hot(_: object) -> dict[str, dict[str, Any]]:
    """Unit → "name", and "requests" under way, null where that cannot be told. Asked: nothing."""
    try:
        targets = config.load_host(layout.Paths().targets).targets.values()
    except errors.Problem:
        # Of an earlier Lockstep, or of none.
        return {}
    states = units.show([target.unit for target in targets])
    return {
        target.unit: {"name": target.name, "requests": _requests(target)}
        for target in targets
        if states[target.unit].state not in ("off", "failed")
    }


def _requests(target: config.Target) -> int | None:
    if not target.itself.url:
        return None
    try:
        counters = openai_api.counters(target.itself, None, _ANSWER_S)
    except openai_api.NotReady:
        return None
    return counters.outstanding if counters else None
