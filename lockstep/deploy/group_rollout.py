"""A deploy that changes a cluster's hot model: stop once, start once, restore all on failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal

#: `down` and `up` concern all members, `up` with what was deployed; `ended` has one member forget
#: what it kept, or with a reason return to it; `again` starts what there was before on all.
Step = Literal["down", "up", "ended", "again"]
#: Takes a step on the member of that name, for a reason; whether it succeeded, and what it said.
Run = Callable[[str, Step, str], tuple[bool, Sequence[str]]]


class GroupRollout:
    """One model that was hot before this run. Its members come in threads of their own.

    Args:
        target: Name of the model.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._alone = threading.Lock()
        self._down = self._served = False
        self._over = threading.Event()

    def take_down(self, down: Callable[[], bool]) -> bool:
        """Whether the model is down on all members; the first that comes does it for all."""
        with self._alone:
            self._down = self._down or down()
            return self._down

    def bring_up(self, speaker: str, members: Sequence[str], run: Run) -> list[str]:
        """Start the model on all members; where it does not serve, have each return.

        Args:
            speaker: The member that does it for all.
            members: Every member that this run may have changed, also one that has failed since.
            run: Takes a step on a member.

        Returns:
            [] when it serves; else why it does not, and what became of it.
        """
        try:
            self._served, said = run(speaker, "up", "")
            if self._served:
                for member in members:
                    run(member, "ended", "")
                return []
            why = said[-1] if said else f"{self.target} does not serve"
            run(speaker, "down", "")
            stuck = [member for member in members if not run(member, "ended", why)[0]]
            back, _ = run(speaker, "again", "")
        finally:
            self._over.set()
        found = [why, *(f"{member} did not return to what there was" for member in stuck)]
        if back:
            return [*found, f"{self.target} is hot again on all members, as it was before"]
        return [*found, f"{self.target} did not come back: `switch.sh status` says what is hot"]

    def served(self) -> bool:
        """Whether it came up; waits until that is known."""
        self._over.wait()
        return self._served
