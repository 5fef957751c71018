"""A member's part in a switch, kept in /run: an agent that is restarted undoes it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common
else:
    import common

# A unit's start gate asks within this time whether its rank may start.
_ADMITTED_S = 60.0


@dataclass(frozen=True)
class Part:
    """This host's part in one switch: its id, who asked and where, what was hot here before."""

    switch: str
    user: str
    asked_on: str
    wanted: str
    previous: str | None
    dropped: bool = False


def kept(paths: common.Paths) -> Part | None:
    """The part that an earlier agent kept; None where it owed nothing."""
    try:
        return Part(**json.loads(paths.joined.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep(paths: common.Paths, part: Part) -> None:
    """Keep it in one step."""
    new = paths.joined.with_suffix(".new")
    new.write_text(json.dumps(asdict(part)), encoding="utf-8")
    new.replace(paths.joined)


def admit(paths: common.Paths, name: str) -> None:
    """Let the rank of a target start now."""
    until = time.monotonic() + _ADMITTED_S
    paths.admitted.write_text(json.dumps({"target": name, "until": until}))


def forget(paths: common.Paths) -> None:
    """The switch is over: nothing is owed, and no rank may start."""
    paths.admitted.unlink(missing_ok=True)
    paths.joined.unlink(missing_ok=True)
