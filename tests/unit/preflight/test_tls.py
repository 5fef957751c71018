"""The gateway's certificate before a deploy."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.findings import Finding

YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
NAME = "spark-1.tail1234.ts.net"


def plan(tls: object, *names: str) -> Any:
    return spark(gateway={"bind": "0.0.0.0", "tls": tls, "names": names})


def found(**facts: object) -> list[Finding]:
    this = plan(YOURS)
    answer = healthy(this, 1000.0)
    answer["tls"] |= facts
    return preflight.findings(this, pins_for(this), answer, now=1000.0)


@pytest.mark.parametrize(
    ("this", "asked"),
    [
        (spark(), {}),
        (plan(YOURS), YOURS),
        (plan("own"), {"own": True}),
        (plan("tailscale", NAME, "10.0.0.5"), {"tailscale": [NAME]}),
    ],
)
def test_a_host_is_asked_for_what_is_wanted(this: Any, asked: dict[str, Any]) -> None:
    assert preflight.questions(this, pins_for(this))["tls"] == asked


def test_one_that_cannot_be_used_stops_the_deploy() -> None:
    [finding] = found(fault="/etc/ssl/spark.key: Permission denied")
    assert (finding.code, finding.severity) == ("certificate", "error")
    assert "/etc/ssl/spark.key: Permission denied" in finding.message


def test_one_that_ends_soon_is_a_warning() -> None:
    assert found(days=21) == []
    [finding] = found(days=20)
    assert (finding.code, finding.severity) == ("certificate-ends", "warning")
    assert "20 days" in finding.message and "restart lockstep-tls" in finding.remedy
