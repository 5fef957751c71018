"""A quick check for `switch.sh status`: does a hot engine generate now."""

from __future__ import annotations

import time

from lockstep.onhost.core import config, errors
from lockstep.onhost.engine import openai_api

# A status on a phone must not hang. An engine that needs longer for one token is busy or wedged.
TOKEN_TIMEOUT_S = 5.0


def generating_state(model: config.Model) -> tuple[bool, str]:
    """Tell whether a hot engine generates, and the evidence for it."""
    try:
        openai_api.check_health(model, timeout=2)
    except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
        return False, f"does not serve: {answer}"
    try:
        test_answer = openai_api.ask_test_question(
            model, openai_api.api_key(model), TOKEN_TIMEOUT_S, tokens=1
        )
    except errors.Problem:
        return True, "/health is green; no right to ask for a token"
    except openai_api.RequestRefusal as answer:
        return False, f"refuses to generate: {answer}"
    except openai_api.NotReady as answer:
        return False, f"/health is green, but no token ({answer}): {_busy_or_wedged(model)}"
    return True, test_answer


def _busy_or_wedged(model: config.Model) -> str:
    """Tell a busy engine from a wedged one by two readings of its counters, if it has any."""
    try:
        key = openai_api.api_key(model)
        first = openai_api.counters(model, key, timeout=3)
        time.sleep(1)
        second = openai_api.counters(model, key, timeout=3)
    except (errors.Problem, openai_api.NotReady):
        return "wedged, its metrics do not answer either"
    if first is None or second is None:
        return "busy or wedged"
    engine_state = "busy" if first.moving != second.moving else "wedged, no counter moves"
    return f"{engine_state}, requests outstanding: {second.outstanding}"
