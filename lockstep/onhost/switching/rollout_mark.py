"""The holds of a running rollout: its mark, and the switch lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lockstep.onhost.core import atomic, clock, errors, layout, output, switch_lock

USER = "the deploy"
# A switch of an operator is waited for: it takes as long as two starts and a stop at most.
SWITCH_LIMIT_S = 7200.0


@contextmanager
def marked(paths: layout.Paths, name: str) -> Iterator[None]:
    """Say which target is being restarted until that has ended by itself.

    In /run: a power cut leaves nothing that could start a model at boot.
    """
    atomic.write_json(paths.rollout, {"target": name})
    try:
        yield
    except errors.Problem:
        paths.rollout.unlink(missing_ok=True)
        raise
    paths.rollout.unlink(missing_ok=True)


def take_mark(paths: layout.Paths) -> str | None:
    """Target of a rollout that was cut off, whose mark is then gone; None without one."""
    try:
        found = str(json.loads(paths.rollout.read_text(encoding="utf-8"))["target"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    paths.rollout.unlink(missing_ok=True)
    return found


@contextmanager
def alone(paths: layout.Paths) -> Iterator[None]:
    """Hold the switch lock; somebody else's switch is waited for."""
    began, told = clock.now(), -30.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(switch_lock.held(paths.switch_lock, USER, "a new generation"))
                break
            except switch_lock.Locked as problem:
                waited = clock.now() - began
                if waited > SWITCH_LIMIT_S:
                    raise
                if waited - told >= 30:
                    told = waited
                    output.say(f"waiting: {problem}")
            clock.sleep(0.5)
        yield
