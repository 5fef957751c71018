"""A change that may cut the connection: it is undone unless a new login confirms it in time.

A timer of systemd reverts it, so that this works also if the connection, this program or the deploy
is gone by then.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from lockstep.onhost.core import errors, event_lines, file_lock, program_command_lines, runner
from lockstep.onhost.systemd import units


class Trial(ABC):
    """One kind of change; subclasses say how it is reverted.

    Attributes:
        program: The timer starts it, with the word `back`: a word of `__main__.py`.
        backup: The earlier state, for as long as nobody has confirmed the change.
        lock: Held by every program that changes anything of it.
        taken_back: The message for operators after an unconfirmed change.
    """

    def __init__(self, program: str, target_path: Path, lock: Path, taken_back: str) -> None:
        self.program, self.backup, self.lock = program, target_path, lock
        self.taken_back = taken_back
        self._unit = f"lockstep-{program}-back"

    @abstractmethod
    def store_state(self) -> None:
        """Store the present state in `backup`."""

    @abstractmethod
    def restore_state(self) -> None:
        """Restore the state in `backup`, and remove it."""

    def hold_trial_lock(self) -> AbstractContextManager[None]:
        """Hold the lock, because two deploys and the timer may come together."""
        return file_lock.hold_lock(self.lock)

    def apply_with_revert_timer(self, seconds: int, apply: Callable[[], None]) -> None:
        """Make a change, with a timer that reverts it.

        Raises:
            errors.Problem: The change failed, and was reverted at once.
        """
        self.stop_revert_timer()
        # After two unconfirmed attempts, the state before both comes back.
        if not self.backup.exists():
            self.store_state()
        argv = ["systemd-run", "--quiet", "--collect", f"--unit={self._unit}"]
        argv += [f"--on-active={seconds}", "--timer-property=AccuracySec=1"]
        try:
            # The timer comes first: this connection may not live to see the next command.
            runner.run_or_raise(*argv, *program_command_lines.command(self.program, "back"))
            apply()
        except errors.Problem:
            self.stop_revert_timer()
            self.restore_state()
            raise

    def revert_change(self) -> None:
        """Revert the change and say so; do nothing if nothing is on trial."""
        if self.backup.exists():
            self.restore_state()
            event_lines.say(self.taken_back)
        # This comes last, because it may stop the timer's own service.
        self.stop_revert_timer()

    def stop_revert_timer(self) -> None:
        """Stop the timer."""
        units.try_to_control("stop", f"{self._unit}.timer")


def parse_trial_options(
    doc: str | None, argv: list[str], actions: Mapping[str, str]
) -> argparse.Namespace:
    """Parse `action`, `seconds` and `adopt` of `try`; `actions` has all with a word of help."""
    parser = program_command_lines.parser(doc)
    known_actions = parser.add_subparsers(dest="action", required=True)
    for name, text in actions.items():
        action = known_actions.add_parser(name, help=text)
        if name == "try":
            action.add_argument("--seconds", type=int, required=True, metavar="N")
            action.add_argument("--adopt", action="store_true", help="replace somebody else's file")
    return parser.parse_args(argv)
