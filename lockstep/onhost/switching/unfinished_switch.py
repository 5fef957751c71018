"""The goal of a switch that was cut off: killed, stopped, out of memory.

It is no state: systemd knows the hot model. It only records what an interrupted switch has yet to
do. It is in /run, so that a power cut leaves nothing that could start a model at boot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic, errors, layout


@dataclass(frozen=True)
class UnfinishedSwitch:
    """The wanted model, the one to bring back (or None), the person, the cluster's switch."""

    model: str
    previous: str | None
    user: str
    switch: str | None = None


@contextmanager
def keep_on_record(paths: layout.Paths, work: UnfinishedSwitch) -> Iterator[None]:
    """Keep `work` on record until it ends by itself, well or with a Problem."""
    path = paths.unfinished_switch
    atomic.write_json(path, asdict(work))
    try:
        yield
    except errors.Problem:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


def take_unfinished_work(paths: layout.Paths) -> UnfinishedSwitch | None:
    """Remove and return the work on record: a second interruption is not mended again."""
    try:
        data = json.loads(paths.unfinished_switch.read_text(encoding="utf-8"))
        work = UnfinishedSwitch(
            str(data["model"]), data["previous"], str(data["user"]), data.get("switch")
        )
    except (OSError, ValueError, LookupError, TypeError):
        work = None
    paths.unfinished_switch.unlink(missing_ok=True)
    return work
