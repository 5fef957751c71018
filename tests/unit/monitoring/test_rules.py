"""Rules against what they are made of: the table of metrics, and the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path

import metric_names
import pytest
from a_spark import spark
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.monitoring.rules import PAGE, Alert, alerts, twin_alerts
from lockstep.onhost.monitoring.metrics import METRICS
from lockstep.onhost.switching import wedge

EVERY = (*alerts(spark(gpu={"max_clock_mhz": 2100}).settings), *twin_alerts(["spark2"]))
_REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: alert.name)
def test_a_rule_asks_for_metrics_and_labels_that_exist(alert: Alert, tmp_path: Path) -> None:
    asked = metric_names.asked(alert.expr)
    assert asked <= metric_names.published(tmp_path)
    said = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.remedy))
    known = {label for name in asked & METRICS.keys() for label in METRICS[name].labels}
    assert said <= known


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: alert.name)
def test_the_page_has_a_section_with_the_alert_s_severity_and_time(alert: Alert) -> None:
    page = (_REPOSITORY / f"docs/{PAGE}.md").read_text(encoding="utf-8")
    section = page.partition(f"### {alert.name}\n\n")[2]
    assert CliRunner().invoke(main, ["help", PAGE, alert.anchor]).exit_code == 0
    assert section.startswith(f"{alert.severity}, {_after(alert.wait_s)}"), section[:80]


def _after(seconds: int) -> str:
    if not seconds:
        return "at once"
    amount, unit = (seconds // 3600, "hour") if seconds >= 3600 else (seconds // 60, "minute")
    return f"after {amount} {unit}{'s' if amount > 1 else ''}"


def test_a_threshold_is_the_host_s_own() -> None:
    plan = spark(expected={"free_disk_gib": 7.0}, gpu={"max_clock_mhz": 1900})
    said = {alert.name: f"{alert.expr} {alert.summary}" for alert in alerts(plan.settings)}
    assert f"< {7 * 1024**3}" in said["DiskFull"] and "7 GiB" in said["DiskFull"]
    assert "1900 MHz" in said["ClockCapLost"]


@pytest.mark.parametrize("page", [PAGE, "switching"])
def test_how_often_the_wedge_watch_restarts_is_one_number(page: str) -> None:
    said = f"after {wedge.RESTARTS} restarts in an hour"
    assert wedge.WINDOW_S == 3600
    [alert] = [alert for alert in EVERY if alert.name == "EngineWedged"]
    assert said in alert.remedy
    assert said in (_REPOSITORY / f"docs/{page}.md").read_text(encoding="utf-8")
