"""A member's work that takes long, and its lines meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lockstep.onhost.core import errors, event_lines

#: Long work that prints lines and returns whether it ended well.
Do = Callable[[Callable[[str], None]], bool]


class Work:
    """Work that takes long, in a thread, with its `lines` as programs read; None means no work."""

    def __init__(self, do: Do | None = None) -> None:
        self.lines: list[str] = []
        self.ok: bool | None = None
        self.problem = ""
        self._thread = threading.Thread(target=self._run, args=(do,), daemon=True)
        if do is not None:
            self._thread.start()

    @property
    def busy(self) -> bool:
        """True while the work goes on."""
        return self._thread.is_alive()

    def _say(self, line: str) -> None:
        self.lines.append(event_lines.line_for_programs(line))
        print_to_journal(line)

    def _run(self, do: Do) -> None:
        try:
            self.ok = do(self._say)
        except errors.Problem as problem:
            self.ok, self.problem = False, str(problem)
            self._say(str(problem))
        except Exception as error:
            self.ok, self.problem = False, f"{type(error).__name__}: {error}"
            raise


def print_to_journal(line: str) -> None:
    """Print one line for the agent's journal."""
    event_lines.say(f"lockstep cluster: {line}")
