"""Drift of the GPU: findings of the watch on the host, and a lost cap of the clock."""

from __future__ import annotations

from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import gpu_health
from lockstep.onhost.system.gpu_sensors import CAP_UNIT
from lockstep.resources.fact_comparison import DriftRow, Kind


def _again(row: DriftRow) -> tuple[str, ...]:
    return ("systemctl", "restart", CAP_UNIT) if row.item == "gpu-cap" else ()


KINDS = {"gpu": Kind(gpu_health.findings, mend=_again, scope="odd")}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {gpu_health.findings: {"max_clock_mhz": desired_state.plan.settings.gpu.max_clock_mhz}}
