"""Whether a hot engine generates now, as `switch.sh status` asks it: quickly."""

from __future__ import annotations

import time

from lockstep.onhost.core import config, errors
from lockstep.onhost.engine import openai_api

# A status on a phone must not hang: an engine that needs longer for one token is busy or wedged.
TOKEN_TIMEOUT_S = 5.0


def asked(target: config.Target) -> tuple[bool, str]:
    """Whether a hot engine generates, and how that is known."""
    try:
        openai_api.check_health(target, timeout=2)
    except (openai_api.NotReady, openai_api.Refused) as answer:
        return False, f"does not serve: {answer}"
    try:
        canary = openai_api.canary(target, openai_api.api_key(target), TOKEN_TIMEOUT_S, tokens=1)
    except errors.Problem:
        return True, "/health is green; no right to ask for a token"
    except openai_api.Refused as answer:
        return False, f"refuses a generation: {answer}"
    except openai_api.NotReady as answer:
        return False, f"/health is green, but no token ({answer}): {_busy_or_wedged(target)}"
    return True, canary


def _busy_or_wedged(target: config.Target) -> str:
    """Told apart by two looks at the engine's counters, where it publishes any."""
    try:
        key = openai_api.api_key(target)
        first = openai_api.counters(target, key, timeout=3)
        time.sleep(1)
        second = openai_api.counters(target, key, timeout=3)
    except (errors.Problem, openai_api.NotReady):
        return "wedged, its metrics do not answer either"
    if first is None or second is None:
        return "busy or wedged"
    what = "busy" if first.moving != second.moving else "wedged, no counter moves"
    return f"{what}, requests outstanding: {second.outstanding}"
