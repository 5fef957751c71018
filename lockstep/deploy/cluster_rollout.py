"""A deploy that changes a cluster's hot model: stop once, start once, restore all on failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal

#: `down` and `up` concern all members, and `up` starts the new deploy's model. `ended` has one
#: member roll back for a reason. `again` starts the earlier model on all members.
Step = Literal["down", "up", "ended", "again"]
#: Takes a step on the named member for a reason; returns whether it succeeded, and its output.
Run = Callable[[str, Step, str], tuple[bool, Sequence[str]]]


class ClusterRollout:
    """One model that was hot before this run. Each of its members uses a thread of its own."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._alone = threading.Lock()
        self._down = self._has_served = False
        self._over = threading.Event()

    def take_down(self, down: Callable[[], bool]) -> bool:
        """Tell whether the model is down on all members; the first member here stops it for all."""
        with self._alone:
            self._down = self._down or down()
            return self._down

    def bring_up(self, speaker: str, members: Sequence[str], run: Run) -> list[str]:
        """Start the model on all members; roll all of them back if it does not serve.

        Args:
            speaker: The member that acts for all.
            members: Every member that this run may have changed, even if it has failed since.
            run: Takes a step on a member.

        Returns:
            [] if the model serves; else the reason, and the outcome of the rollback.
        """
        try:
            self._has_served, output = run(speaker, "up", "")
            if self._has_served:
                return []
            why = output[-1] if output else f"{self.model} does not serve"
            run(speaker, "down", "")
            stuck_members = [member for member in members if not run(member, "ended", why)[0]]
            back, _ = run(speaker, "again", "")
        finally:
            self._over.set()
        faults = [why, *(f"{member} did not return to what there was" for member in stuck_members)]
        if back:
            return [*faults, f"{self.model} is hot again on all members, as it was before"]
        return [*faults, f"{self.model} did not come back: `switch.sh status` says what is hot"]

    def is_serving(self) -> bool:
        """Wait until the start has ended; tell whether the model serves."""
        self._over.wait()
        return self._has_served
