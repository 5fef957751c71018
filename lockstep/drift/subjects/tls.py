"""Drift of the gateway's certificate, where it is one of yours."""

from __future__ import annotations

from typing import Any

from lockstep.drift.subjects.kind import Kind
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.inventory.settings import Certificate
from lockstep.onhost.facts import tls
from lockstep.units.tls_unit import certificate_paths

KINDS = {"certificate": Kind(tls.findings, scope="odd")}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    wanted = this.plan.settings.gateway.tls
    asked = certificate_paths(wanted) if isinstance(wanted, Certificate) else {}
    return {tls.findings: asked}
