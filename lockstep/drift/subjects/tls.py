"""Drift of the gateway's certificate, if it is the owner's."""

from __future__ import annotations

from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.settings import Certificate
from lockstep.onhost.facts import tls
from lockstep.resources.fact_comparison import Kind
from lockstep.units.tls_unit import certificate_paths

KINDS = {"certificate": Kind(tls.findings, scope="odd")}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    wanted_tls = desired_state.plan.settings.gateway.tls
    paths = certificate_paths(wanted_tls) if isinstance(wanted_tls, Certificate) else {}
    return {tls.findings: paths}
