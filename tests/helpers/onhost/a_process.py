"""Programs of several hosts in one process: each thread knows whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import onhost_fake_systemd
import pytest
from a_clock import Clock
from onhost_fake_systemd import PROCESS
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, layout, output, switch_lock
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.switching import switch_job
from lockstep.onhost.systemd import units

T = TypeVar("T")


@dataclass(eq=False)
class Process:
    """One program.

    Attributes:
        systemd: Folder of the units of its host.
        out: Takes what it says; None: the test does.
        frozen: Whether it does nothing any more; that of one that was killed is final.
    """

    systemd: str
    out: Any
    frozen: bool = False

    def do(self, work: Callable[[], T]) -> T:
        """Do something as this program. Threads that it starts are this program's."""

        def mine() -> T:
            PROCESS.set(self)
            return work()

        return copy_context().run(mine)

    def another(self, out: Any) -> Process:
        """Another program of its host."""
        return replace(self, out=out, frozen=False)


def have_switches(
    monkeypatch: pytest.MonkeyPatch, *hosts: tuple[FakeSystemd, layout.Paths]
) -> None:
    """Have systemd run the switches of these hosts as a part of this process, or a fork of it."""
    roots = {str(systemd.folder): paths for systemd, paths in hosts}

    def switch(words: Sequence[str]) -> int:
        paths = roots[onhost_fake_systemd.folder()]
        return errors.ended("switch.sh", lambda: switch_sh.main(list(words), paths))

    monkeypatch.setattr(units, "is_root", lambda: True)
    monkeypatch.setattr(switch_job, "program", lambda: ["switch.sh"])
    monkeypatch.setitem(onhost_fake_systemd.HERE, ("switch.sh",), switch)


@contextmanager
def one_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Have all programs be threads, which end with the block, and say what they say apart."""

    def say(text: str, file: Any = None, flush: bool = False) -> None:
        process = PROCESS.get()
        print(text, file=(process and process.out) or file)

    for module in (output, errors):
        monkeypatch.setattr(module, "print", say, raising=False)
    # Who holds a lock would wait for its end, and so would the clock.
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    clock = Clock(monkeypatch)
    try:
        yield clock
    finally:
        clock.stop()


@contextmanager
def one_clock_of(systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The same of one host; the test is one of its programs."""
    with one_clock(monkeypatch) as clock:
        before = PROCESS.set(Process(str(systemd.folder), None))
        yield clock
        PROCESS.reset(before)
