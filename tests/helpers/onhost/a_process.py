"""Programs of several hosts in one process: each thread knows whose it is."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from onhost_fake_systemd import PROCESS

from lockstep.onhost.core import errors, output

T = TypeVar("T")


@dataclass(eq=False)
class Process:
    """One program.

    Attributes:
        systemd: Folder of the units of its host.
        out: Takes what it says.
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


def tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what each program says go to that program's own place."""

    def say(text: str, file: Any = None, flush: bool = False) -> None:
        process = PROCESS.get()
        print(text, file=process.out if process else file)

    for module in (output, errors):
        monkeypatch.setattr(module, "print", say, raising=False)
