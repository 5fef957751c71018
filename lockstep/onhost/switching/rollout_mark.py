"""The holds of a running rollout: its mark, and the switch lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lockstep.onhost.core import atomic, clock, errors, layout, output, switch_lock

USER = "the deploy"
# An operator's switch is waited for: it takes as long as two starts and a stop at most.
SWITCH_LIMIT_S = 7200.0


@contextmanager
def hold_mark(paths: layout.Paths, name: str) -> Iterator[None]:
    """Mark which model is being restarted, until that has ended by itself.

    In /run: a power cut leaves nothing that could start a model at boot.
    """
    atomic.write_json(paths.rollout, {"model": name})
    try:
        yield
    except errors.Problem:
        paths.rollout.unlink(missing_ok=True)
        raise
    paths.rollout.unlink(missing_ok=True)


def take_mark(paths: layout.Paths) -> str | None:
    """Remove the mark of a rollout that was cut off, and return its model; None without one."""
    try:
        model_name = str(json.loads(paths.rollout.read_text(encoding="utf-8"))["model"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    paths.rollout.unlink(missing_ok=True)
    return model_name


@contextmanager
def hold_switch_lock(paths: layout.Paths) -> Iterator[None]:
    """Hold the switch lock, after waiting for anybody else's switch."""
    began, last_report_s = clock.now(), -30.0
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(
                    switch_lock.hold_lock(paths.switch_lock, USER, "a new generation")
                )
                break
            except switch_lock.SwitchUnderWay as problem:
                waited_s = clock.now() - began
                if waited_s > SWITCH_LIMIT_S:
                    raise
                if waited_s - last_report_s >= 30:
                    last_report_s = waited_s
                    output.say(f"waiting: {problem}")
            clock.sleep(0.5)
        yield
