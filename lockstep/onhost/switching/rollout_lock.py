"""The switch lock in the hands of a deploy, which waits for everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lockstep.onhost.core import clock, event_lines, layout, switch_lock

USER = "the deploy"
# An operator's switch is waited for: it takes as long as two starts and a stop at most.
SWITCH_LIMIT_S = 7200.0


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
                    event_lines.say(f"waiting: {problem}")
            clock.sleep(0.5)
        yield
