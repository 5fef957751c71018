"""The result of the last look at the sense of each model, in /run."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.onhost.core import atomic, config, file_lock, layout
from lockstep.onhost.engine import sense


@dataclass(frozen=True)
class LastLook:
    """The last look at a model: the main process asked, the time (Unix, s), and the verdict."""

    pid: int
    at: float
    state: sense.State
    words: str


def record_look(
    paths: layout.Paths, model: config.Model, verdict: sense.SenseVerdict, pid: int
) -> None:
    """Record a look at a model; `pid` is the main process that was asked."""
    with _records_lock(paths):
        last_look = LastLook(pid, time.time(), verdict.state, verdict.words)
        atomic.write_json(paths.last_senses, {**_read(paths), model.name: asdict(last_look)})


def remove_last_look(paths: layout.Paths, name: str) -> None:
    """Forget the last look at a model, because it was cut short."""
    with _records_lock(paths):
        remaining_looks = {k: v for k, v in _read(paths).items() if k != name}
        atomic.write_json(paths.last_senses, remaining_looks)


def last_looks(paths: layout.Paths) -> dict[str, LastLook]:
    """Return the last look at each model since boot."""
    try:
        return {name: LastLook(**look) for name, look in _read(paths).items()}
    except TypeError:
        return {}


def _records_lock(paths: layout.Paths) -> AbstractContextManager[None]:
    # A start and the timer may end their looks at the same time.
    return file_lock.hold_lock(paths.run / "senses.lock")


def _read(paths: layout.Paths) -> dict[str, Any]:
    document = atomic.read_json(paths.last_senses)
    return document if isinstance(document, dict) else {}
