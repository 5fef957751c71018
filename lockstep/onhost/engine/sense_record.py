"""What each target answered when it was accepted, on disk; and what the last look found, in /run.

A record belongs to what was deployed (`Target.identity`): another model, image or flag begins a new
one, and a return to the previous generation finds its own again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic, config, file_lock, layout
from lockstep.onhost.engine import sense

# Of one target.
_MOST = 5


@dataclass(frozen=True)
class Seen:
    """The last look at a target: the main process asked, when (Unix time, s), and the verdict."""

    pid: int
    at: float
    state: sense.State
    words: str


def accepted(paths: layout.Paths, target: config.Target) -> Mapping[str, Any] | None:
    """What is on record of a target as it is deployed now, as `Verdict.answers`; None: nothing."""
    kept = _read(paths.senses).get(target.name, {}).get(target.identity)
    return kept["answers"] if kept else None


def decides(paths: layout.Paths, target: config.Target) -> bool:
    """Whether a later answer can be compared with a target's record; True where there is none.

    Whoever answered without log-probabilities when the record began was perhaps not the engine.
    """
    record = accepted(paths, target) if target.sense == "record" else None
    return not record or all(answer["leading"] for answer in record.values())


def keep(paths: layout.Paths, target: config.Target, verdict: sense.Verdict, pid: int) -> str:
    """Remember a look. What there is to say about the record, or "".

    Sound answers without a record become it.
    """
    with _alone(paths):
        seen = Seen(pid, time.time(), verdict.state, verdict.words)
        atomic.write_json(paths.sensed, {**_read(paths.sensed), target.name: asdict(seen)})
        if verdict.state != "sound" or accepted(paths, target) is not None:
            return ""
        entry = {
            "answers": verdict.answers,
            "judged": sense.RECORDED if verdict.by_record else "by right answers",
            "recipe": target.recipe,
            "image": target.image,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        every = _read(paths.senses)
        of_target = {**every.get(target.name, {}), target.identity: entry}
        newest = dict(list(of_target.items())[-_MOST:])
        atomic.write_json(paths.senses, {**every, target.name: newest}, mode=0o600)
    return "these answers are now its record" if verdict.by_record else ""


def forget(paths: layout.Paths, name: str) -> bool:
    """Remove every record of a target; whether there was one."""
    with _alone(paths):
        every = _read(paths.senses)
        there = every.pop(name, None) is not None
        atomic.write_json(paths.senses, every, mode=0o600)
    return there


def unsee(paths: layout.Paths, name: str) -> None:
    """Forget the last look at a target: it was cut short."""
    with _alone(paths):
        kept = {k: v for k, v in _read(paths.sensed).items() if k != name}
        atomic.write_json(paths.sensed, kept)


def last(paths: layout.Paths) -> dict[str, Seen]:
    """Target → the last look at it since boot."""
    try:
        return {name: Seen(**seen) for name, seen in _read(paths.sensed).items()}
    except TypeError:
        return {}


def _alone(paths: layout.Paths) -> AbstractContextManager[None]:
    # A start and the timer may end their looks at the same time.
    return file_lock.held(paths.run / "senses.lock")


def _read(path: Path) -> dict[str, Any]:
    found = atomic.read_json(path)
    return found if isinstance(found, dict) else {}
