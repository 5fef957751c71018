"""The subjects of drift: each says how a part of a host is read, expected, judged and mended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects import (
    accounts,
    docker,
    environments,
    files,
    gpu,
    machine,
    models,
    network,
    packages,
    settings,
    tls,
    units,
    weights,
)
from lockstep.drift.subjects.kind import Expectation, Kind, Seen
from lockstep.files.sent import Reader, named
from lockstep.host.intended import Intended
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.onhost.core.schema import Refusal, spelling_hint

_SUBJECTS = (
    *(
        machine,
        gpu,
        units,
        packages,
        docker,
        environments,
        network,
        settings,
        accounts,
        files,
        weights,
        models,
        tls,
    ),
)
KINDS: dict[str, Kind] = {
    kind: about for subject in _SUBJECTS for kind, about in subject.KINDS.items()
}


def unknown_kinds(settings: Settings) -> Refusals:
    """Refuse what `differs` of a host names and is no kind of fact."""
    for pattern in settings.differs:
        if not any(pattern.startswith(f"{kind} ") for kind in KINDS):
            yield Refusal(
                "differs names no kind of fact",
                found=repr(pattern)[:60],
                allowed="KIND ITEM as `lockstep diff` shows it: " + ", ".join(sorted(KINDS)),
                remedy=spelling_hint(pattern.rpartition(" ")[0], KINDS),
            )


def questions(this: Intended, *, key: bytes, deep: bool) -> dict[str, Any]:
    """Name of a reader → what to ask it on one host.

    Args:
        key: Key of this run's hashes.
        deep: Whether every file of weights and packages is read.

    Raises:
        LockstepError: the record lacks something that the inventory asks for.
    """
    asked: dict[Reader, Any] = {about.reader: {} for about in KINDS.values()}
    for subject in _SUBJECTS:
        if hasattr(subject, "questions"):
            asked |= subject.questions(this)
    run = {"key": key.hex(), "deep": deep}
    return {named(reader): {**run, **question} for reader, question in asked.items()}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """Everything that inventory and lock ask of one host."""
    for subject in _SUBJECTS:
        if hasattr(subject, "expected"):
            yield from subject.expected(this, seen)
