"""The subjects of drift: how to read, expect, judge and mend each part of a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects import (
    docker,
    environments,
    files,
    gpu,
    machine,
    models,
    network,
    settings,
    tls,
    units,
    weights,
)
from lockstep.files.remote_exec import Reader, reader_name
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.refusals import Refusals
from lockstep.inventory.settings import Settings
from lockstep.onhost.core.schema import SchemaFault, spelling_hint
from lockstep.resources import RESOURCES
from lockstep.resources.fact_comparison import Expectation, Kind, SubjectView

_SUBJECTS = (
    *(machine, gpu, units, docker, environments, network, settings, files, weights, models, tls),
    *RESOURCES,
)
KINDS: dict[str, Kind] = {
    kind: about for subject in _SUBJECTS for kind, about in subject.KINDS.items()
}


def unknown_kinds(settings: Settings) -> Refusals:
    """Refuse patterns of a host's `differs` that name no kind of fact."""
    for pattern in settings.differs:
        if not any(pattern.startswith(f"{kind} ") for kind in KINDS):
            yield SchemaFault(
                "differs names no kind of fact",
                found=repr(pattern)[:60],
                allowed="KIND ITEM as `lockstep diff` shows it: " + ", ".join(sorted(KINDS)),
                remedy=spelling_hint(pattern.rpartition(" ")[0], KINDS),
            )


def questions(desired_state: DesiredState, *, key: bytes, deep: bool) -> dict[str, Any]:
    """Return the questions to one host, by the name of the reader.

    Args:
        key: Key of this run's hashes.
        deep: True to read every file of weights and packages.

    Raises:
        LockstepError: the record lacks something that the inventory asks for.
    """
    questions_by_reader: dict[Reader, Any] = {about.reader: {} for about in KINDS.values()}
    for subject in _SUBJECTS:
        if hasattr(subject, "questions"):
            questions_by_reader |= subject.questions(desired_state)
    run = {"key": key.hex(), "deep": deep, "others": True}
    return {
        reader_name(reader): {**run, **question} for reader, question in questions_by_reader.items()
    }


def all_expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield every fact that inventory and lock want of one host."""
    for subject in _SUBJECTS:
        if hasattr(subject, "expectations"):
            yield from subject.expectations(desired_state, host_view)
