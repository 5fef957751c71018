"""Programs of several hosts in one process: each thread knows the program it belongs to."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import onhost_fake_systemd
import pytest
from a_clock import Clock
from onhost_fake_systemd import PROCESS
from onhost_fakes import FakeSystemd

from lockstep.onhost.core import errors, event_lines, layout, switch_lock
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.switching import switch_commands
from lockstep.onhost.systemd import units

T = TypeVar("T")


@dataclass(eq=False)
class Process:
    """One program."""

    systemd: str  # Folder of the units of its host.
    out: Any  # Takes its output; None: the test's standard output does.
    is_frozen: bool = False  # Whether the program is stopped; a killed program stays so.

    def do(self, work: Callable[[], T]) -> T:
        """Call a function as this program. Threads that it starts belong to this program."""

        def do_work() -> T:
            PROCESS.set(self)
            return work()

        return copy_context().run(do_work)

    def another(self, out: Any) -> Self:
        return replace(self, out=out, is_frozen=False)


def have_switches(monkeypatch, *hosts: tuple[FakeSystemd, layout.Paths]) -> None:
    """Have systemd run the switches of these hosts within this process, or in a fork of it."""
    roots = {str(systemd.folder): paths for systemd, paths in hosts}

    def switch(words: Sequence[str]) -> int:
        paths = roots[onhost_fake_systemd.folder()]
        return errors.run_main("switch.sh", lambda: switch_sh.main(list(words), paths))

    monkeypatch.setattr(units, "is_root", lambda: True)
    monkeypatch.setattr(switch_commands, "switch_program_command", lambda: ["switch.sh"])
    monkeypatch.setitem(onhost_fake_systemd.HERE, ("switch.sh",), switch)


@contextmanager
def one_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Run all programs as threads that end with the block; each prints to its own output."""

    def say(text: str, file: Any = None, flush: bool = False) -> None:
        process = PROCESS.get()
        print(text, file=(process and process.out) or file)

    for module in (event_lines, errors):
        monkeypatch.setattr(module, "print", say, raising=False)
    # The holder of a lock would wait for the grace to end, and the clock would wait for the holder.
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    clock = Clock(monkeypatch)
    try:
        yield clock
    finally:
        clock.stop()


@contextmanager
def one_clock_of(systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Run the programs of one host as `one_clock` does; the test is one of them."""
    with one_clock(monkeypatch) as clock:
        process_token = PROCESS.set(Process(str(systemd.folder), None))
        yield clock
        PROCESS.reset(process_token)
