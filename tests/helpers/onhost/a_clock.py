"""A clock that a test turns: time passes only when all threads wait for it."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
from onhost_fake_systemd import PROCESS

from lockstep.onhost.core import clock

_BEGAN = 1000.0


class Over(BaseException):
    """The test has ended; raised in each thread that still waits."""


class Clock:
    """A clock in the place of the programs' clock, for the threads that start from now on.

    One thread runs at a time: the one that has waited for the earliest moment. No time passes
    while a thread is busy with anything but a wait for this clock. A frozen thread waits, however
    late it is. A test's servers begin before the clock: they wait for something else.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = _BEGAN
        #: Called with the seconds whenever a thread begins to wait.
        self.asleep: Callable[[float], object] = lambda _: None
        self._plans: list[tuple[float, Callable[[], object]]] = []
        self._waiting: dict[threading.Thread, tuple[float, Any]] = {}
        self._running = {threading.current_thread()}
        self._condition = threading.Condition()
        self._over = False
        self._errors: list[BaseException] = []
        monkeypatch.setattr(clock, "time", self)
        outer, real = self, threading.Thread

        class Thread(real):  # type: ignore[misc,valid-type]
            """A thread that the clock knows, in the context of the thread that starts it."""

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
                    outer._errors.append(error)
                finally:
                    with outer._condition:
                        outer._running.discard(self)
                        outer._pass()

        monkeypatch.setattr(threading, "Thread", Thread)

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        me = threading.current_thread()
        self.asleep(seconds)
        with self._condition:
            # A thread that polls does so ten times a second.
            self._waiting[me] = self.time + max(seconds, 0.1), PROCESS.get()
            self._pass()
            self._condition.wait_for(lambda: self._over or me not in self._waiting)
            if self._waiting.pop(me, None):
                raise Over

    @property
    def elapsed_s(self) -> float:
        return self.time - _BEGAN

    def at(self, seconds: float, change: Callable[[], object]) -> None:
        """Call `change` in so many seconds."""
        self._plans.append((self.time + seconds, change))

    def _pass(self) -> None:
        if self._over or self._running - self._waiting.keys():
            return
        going = [
            (at, entry)
            for entry, (at, owner) in self._waiting.items()
            if not (owner and owner.is_frozen)
        ]
        if not going:
            return
        at, first = min(going, key=lambda candidate: candidate[0])
        self.time = max(self.time, at)
        for plan in [entry for entry in self._plans if entry[0] <= self.time]:
            self._plans.remove(plan)
            plan[1]()
        del self._waiting[first]
        self._condition.notify_all()

    def stop(self) -> None:
        """End all waiting threads, and wait for their ends. Raises a thread's error, if any."""
        with self._condition:
            self._over = True
            self._condition.notify_all()
        me: Any = threading.current_thread()
        for thread in self._running - {me}:
            thread.join(10)
        for error in self._errors:
            raise error
