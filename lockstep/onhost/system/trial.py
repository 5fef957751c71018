"""A change that may cut the connection: it is undone unless a new login confirms it in time.

A timer of systemd takes it back, so that this holds also when the connection, this program or the
deploy is gone by then.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from lockstep.onhost.core import errors, file_lock, output, program, runner


class Trial(ABC):
    """One kind of change; subclasses say how it is taken back.

    Attributes:
        program: What the timer starts, with the word `back`: a word of `__main__.py`.
        before: What there was, for as long as nobody has confirmed the change.
        lock: Held by whoever changes anything of it.
        taken_back: What an operator reads when nobody has confirmed it.
    """

    def __init__(self, program: str, before: Path, lock: Path, taken_back: str) -> None:
        self.program, self.before, self.lock = program, before, lock
        self.taken_back = taken_back
        self._unit = f"lockstep-{program}-back"

    @abstractmethod
    def remember(self) -> None:
        """Write `before`."""

    @abstractmethod
    def restore(self) -> None:
        """Bring back what `before` says, and remove it."""

    def alone(self) -> AbstractContextManager[None]:
        """One program at a time: two deploys and the timer may come together."""
        return file_lock.held(self.lock)

    def try_out(self, seconds: int, apply: Callable[[], None]) -> None:
        """Change something, with a timer that takes it back; Problem where that fails, at once."""
        self.disarm()
        # Of two attempts at once neither was confirmed: what was there before both comes back.
        if not self.before.exists():
            self.remember()
        argv = ["systemd-run", "--quiet", "--collect", f"--unit={self._unit}"]
        argv += [f"--on-active={seconds}", "--timer-property=AccuracySec=1"]
        try:
            # First: this connection may not live to see the next command.
            runner.must(*argv, *program.command(self.program, "back"))
            apply()
        except errors.Problem:
            self.disarm()
            self.restore()
            raise

    def back(self) -> None:
        """Take it back and say so; nothing where nothing is on trial."""
        if self.before.exists():
            self.restore()
            output.say(self.taken_back)
        # Last: this may be the timer's own service.
        self.disarm()

    def disarm(self) -> None:
        """Stop the timer."""
        runner.run(["systemctl", "stop", f"{self._unit}.timer"])


def options(doc: str | None, argv: list[str], actions: Mapping[str, str]) -> argparse.Namespace:
    """`action`, `seconds` and `adopt` of `try`; `actions` has all, each with a word of help."""
    parser = program.parser(doc)
    known = parser.add_subparsers(dest="action", required=True)
    for name, text in actions.items():
        action = known.add_parser(name, help=text)
        if name == "try":
            action.add_argument("--seconds", type=int, required=True, metavar="N")
            action.add_argument("--adopt", action="store_true", help="replace somebody else's file")
    return parser.parse_args(argv)
