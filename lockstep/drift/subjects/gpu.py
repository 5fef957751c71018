"""Drift of the GPU: what the watch on the host found, and a cap of the clock that is lost."""

from __future__ import annotations

from typing import Any

from lockstep.drift.subjects.kind import Kind, Row
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.onhost.facts import gpu
from lockstep.onhost.system.gpu import CAP_UNIT


def _again(row: Row) -> tuple[str, ...]:
    return ("systemctl", "restart", CAP_UNIT) if row.item == "gpu-cap" else ()


KINDS = {"gpu": Kind(gpu.findings, mend=_again, scope="odd")}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {gpu.findings: {"max_clock_mhz": this.plan.settings.gpu.max_clock_mhz}}
