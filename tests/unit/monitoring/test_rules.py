"""Rules against what they are made of: the table of metrics, and the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path

import metric_names
import pytest
from a_spark import spark
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.monitoring.rules import PAGE, Alert, alerts, peer_alerts
from lockstep.onhost.monitoring.metrics import METRICS
from lockstep.onhost.switching import wedge_watch

EVERY = (*alerts(spark(gpu={"max_clock_mhz": 2100}).settings), *peer_alerts(["spark2"]))
_REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: alert.name)
def test_a_rule_asks_for_metrics_and_labels_that_exist(alert: Alert, tmp_path: Path) -> None:
    metrics = metric_names.queried_metrics(alert.expr)
    assert metrics <= metric_names.published_metrics(tmp_path)
    named_labels = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.remedy))
    known_labels = {label for name in metrics & METRICS.keys() for label in METRICS[name].labels}
    assert named_labels <= known_labels


@pytest.mark.parametrize("alert", EVERY, ids=lambda alert: alert.name)
def test_the_page_has_a_section_with_the_alert_s_severity_and_time(alert: Alert) -> None:
    page = (_REPOSITORY / f"docs/{PAGE}.md").read_text(encoding="utf-8")
    section = page.partition(f"### {alert.name}\n\n")[2]
    assert CliRunner().invoke(main, ["help", PAGE, alert.anchor]).exit_code == 0
    assert section.startswith(f"{alert.severity}, {_wait_phrase(alert.wait_s)}"), section[:80]


def _wait_phrase(seconds: int) -> str:
    if not seconds:
        return "at once"
    amount, unit = (seconds // 3600, "hour") if seconds >= 3600 else (seconds // 60, "minute")
    return f"after {amount} {unit}{'s' if amount > 1 else ''}"


def test_a_threshold_is_the_host_s_own() -> None:
    plan = spark(expected={"free_disk_gib": 7.0}, gpu={"max_clock_mhz": 1900})
    texts = {alert.name: f"{alert.expr} {alert.summary}" for alert in alerts(plan.settings)}
    assert f"< {7 * 1024**3}" in texts["DiskFull"] and "7 GiB" in texts["DiskFull"]
    assert "1900 MHz" in texts["ClockCapLost"]


@pytest.mark.parametrize("page", [PAGE, "switching"])
def test_how_often_the_wedge_watch_restarts_is_one_number(page: str) -> None:
    phrase = f"after {wedge_watch.RESTARTS} restarts in an hour"
    assert wedge_watch.WINDOW_S == 3600
    [alert] = [alert for alert in EVERY if alert.name == "EngineWedged"]
    assert phrase in alert.remedy
    assert phrase in (_REPOSITORY / f"docs/{page}.md").read_text(encoding="utf-8")
