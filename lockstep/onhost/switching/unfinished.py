"""The goal of a switch that was cut off: killed, stopped, out of memory.

Not a state: what is hot is asked of systemd. This only says what an interrupted switch owes. It
is in /run, so that a power cut leaves nothing that could start a model at boot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic, errors, layout


@dataclass(frozen=True)
class Unfinished:
    """The wanted target, the one to bring back (or None), who asked, the cluster's switch."""

    target: str
    previous: str | None
    user: str
    switch: str | None = None


@contextmanager
def recorded(paths: layout.Paths, work: Unfinished) -> Iterator[None]:
    """Keep `work` on record until it ends by itself, well or with a Problem."""
    path = paths.unfinished
    atomic.write_json(path, asdict(work))
    try:
        yield
    except errors.Problem:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


def take(paths: layout.Paths) -> Unfinished | None:
    """The work on record, which is then gone: a second interruption is not mended again."""
    try:
        data = json.loads(paths.unfinished.read_text(encoding="utf-8"))
        found = Unfinished(
            str(data["target"]), data["previous"], str(data["user"]), data.get("switch")
        )
    except (OSError, ValueError, LookupError, TypeError):
        found = None
    paths.unfinished.unlink(missing_ok=True)
    return found
