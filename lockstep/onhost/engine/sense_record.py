"""The accepted answers of each model, on disk; and the result of the last look, in /run.

A record belongs to what was deployed (`Model.identity`). Another model, image or flag begins a new
record, and a return to the previous generation finds its own record again.
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

# Records of one model.
_MOST = 5


@dataclass(frozen=True)
class LastLook:
    """The last look at a model: the main process asked, the time (Unix, s), and the verdict."""

    pid: int
    at: float
    state: sense.State
    words: str


def accepted_answers(paths: layout.Paths, model: config.Model) -> Mapping[str, Any] | None:
    """Return a model's recorded answers, as deployed now, as `SenseVerdict.answers`, or None."""
    entry = _read(paths.senses).get(model.name, {}).get(model.identity)
    return entry["answers"] if entry else None


def can_compare_answers(paths: layout.Paths, model: config.Model) -> bool:
    """Tell whether later answers can be compared with a model's record; True without a record.

    If answers came without log-probabilities when the record began, perhaps another process gave
    them.
    """
    record = accepted_answers(paths, model) if model.sense == "record" else None
    return not record or all(answer["leading"] for answer in record.values())


def record_look(
    paths: layout.Paths, model: config.Model, verdict: sense.SenseVerdict, pid: int
) -> str:
    """Record a look; return a remark about the record, or "".

    Sound answers become the record if there is none.
    """
    with _records_lock(paths):
        last_look = LastLook(pid, time.time(), verdict.state, verdict.words)
        atomic.write_json(
            paths.last_senses, {**_read(paths.last_senses), model.name: asdict(last_look)}
        )
        if verdict.state != "sound" or accepted_answers(paths, model) is not None:
            return ""
        entry = {
            "answers": verdict.answers,
            "judged": sense.RECORD_ONLY if verdict.by_record else "by right answers",
            "recipe": model.recipe,
            "image": model.image,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        every = _read(paths.senses)
        of_model = {**every.get(model.name, {}), model.identity: entry}
        newest = dict(list(of_model.items())[-_MOST:])
        atomic.write_json(paths.senses, {**every, model.name: newest}, mode=0o600)
    return "these answers are now its record" if verdict.by_record else ""


def remove_records(paths: layout.Paths, name: str) -> bool:
    """Remove every record of a model; tell whether there was one."""
    with _records_lock(paths):
        every = _read(paths.senses)
        was_recorded = every.pop(name, None) is not None
        atomic.write_json(paths.senses, every, mode=0o600)
    return was_recorded


def remove_last_look(paths: layout.Paths, name: str) -> None:
    """Forget the last look at a model, because it was cut short."""
    with _records_lock(paths):
        remaining_looks = {k: v for k, v in _read(paths.last_senses).items() if k != name}
        atomic.write_json(paths.last_senses, remaining_looks)


def last_looks(paths: layout.Paths) -> dict[str, LastLook]:
    """Return the last look at each model since boot."""
    try:
        return {name: LastLook(**look) for name, look in _read(paths.last_senses).items()}
    except TypeError:
        return {}


def _records_lock(paths: layout.Paths) -> AbstractContextManager[None]:
    # A start and the timer may end their looks at the same time.
    return file_lock.hold_lock(paths.run / "senses.lock")


def _read(path: Path) -> dict[str, Any]:
    document = atomic.read_json(path)
    return document if isinstance(document, dict) else {}
