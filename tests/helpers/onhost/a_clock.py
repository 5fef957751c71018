"""A clock that a test turns: time passes only when everybody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
from onhost_fake_systemd import PROCESS

from lockstep.onhost.core import clock

_BEGAN = 1000.0


class Over(BaseException):
    """The test has ended: so does whoever still waits."""


class Clock:
    """In the place of the programs' clock, and of the threads that start from now on.

    One thread goes on at a time, that which has waited for the earliest moment. As long as one does
    not wait for this clock no time passes. What is frozen waits however late it is. A test's
    servers begin before: they wait for something else.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = _BEGAN
        #: Called with the seconds whenever somebody begins to wait.
        self.asleep: Callable[[float], object] = lambda _: None
        self._plans: list[tuple[float, Callable[[], object]]] = []
        self._waiting: dict[threading.Thread, tuple[float, Any]] = {}
        self._running = {threading.current_thread()}
        self._changed = threading.Condition()
        self._over = False
        self._died: list[BaseException] = []
        monkeypatch.setattr(clock, "time", self)
        outer, real = self, threading.Thread

        class Thread(real):  # type: ignore[misc,valid-type]
            """One that the clock knows, in the context of whoever starts it."""

            def start(self) -> None:
                self._as = copy_context()
                outer._running.add(self)
                super().start()

            def run(self) -> None:
                try:
                    self._as.run(super().run)
                except Over:
                    pass
                except BaseException as error:
                    outer._died.append(error)
                finally:
                    with outer._changed:
                        outer._running.discard(self)
                        outer._pass()

        monkeypatch.setattr(threading, "Thread", Thread)

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        me = threading.current_thread()
        self.asleep(seconds)
        with self._changed:
            # Who looks again and again looks ten times a second.
            self._waiting[me] = self.time + max(seconds, 0.1), PROCESS.get()
            self._pass()
            self._changed.wait_for(lambda: self._over or me not in self._waiting)
            if self._waiting.pop(me, None):
                raise Over

    @property
    def passed(self) -> float:
        """Seconds since the test began."""
        return self.time - _BEGAN

    def at(self, seconds: float, change: Callable[[], object]) -> None:
        """Have something done in so many seconds."""
        self._plans.append((self.time + seconds, change))

    def _pass(self) -> None:
        if self._over or self._running - self._waiting.keys():
            return
        going = [
            (at, each)
            for each, (at, whose) in self._waiting.items()
            if not (whose and whose.frozen)
        ]
        if not going:
            return
        at, first = min(going, key=lambda found: found[0])
        self.time = max(self.time, at)
        for plan in [each for each in self._plans if each[0] <= self.time]:
            self._plans.remove(plan)
            plan[1]()
        del self._waiting[first]
        self._changed.notify_all()

    def stop(self) -> None:
        """End whoever waits, and wait for those ends. Raises what ended a thread before."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        me: Any = threading.current_thread()
        for thread in self._running - {me}:
            thread.join(10)
        for error in self._died:
            raise error
