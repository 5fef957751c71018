"""What an agent does in a thread because it takes long, and what it says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common
else:
    import common

#: Who starts a group again after a fault.
WATCH = "the cluster watch"
#: Long work that says lines and ends well or not.
Do = Callable[[Callable[[str], None]], bool]


class Work:
    """Something that takes long, in a thread; `lines` are what it said."""

    def __init__(self, do: Do) -> None:
        self.lines: list[str] = []
        self.ok: bool | None = None
        self.problem = ""
        self._do = do
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Return when it has ended, or after so many seconds."""
        self._thread.join(limit_s)

    def _say(self, line: str) -> None:
        self.lines.append(line)
        tell(line)

    def _run(self) -> None:
        try:
            self.ok = self._do(self._say)
        except common.Problem as problem:
            self.ok, self.problem = False, str(problem)
            self._say(str(problem))
        except Exception as error:
            self.ok, self.problem = False, f"{type(error).__name__}: {error}"
            raise


def tell(line: str) -> None:
    """One line for the agent's journal."""
    common.say(f"lockstep cluster: {line}")
