"""Rules and dashboards ask for metrics that exist, and their page explains them."""

import json
import re
from pathlib import Path
from typing import Any

import metric_names
import pytest
import yaml
from a_spark import spark
from click.testing import CliRunner
from tools import run

from lockstep.cli.main import main
from lockstep.monitoring.rules import rules_text
from lockstep.onhost.monitoring.metric_table import METRICS

TEXT = rules_text(spark(gpu={"max_clock_mhz": 2100}).settings, ["spark2"])
EVERY = metric_names.alert_rules(TEXT)
_REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("alert", EVERY.values(), ids=EVERY)
def test_a_rule_asks_for_metrics_and_labels_that_exist(alert: Any, tmp_path: Path) -> None:
    metrics = metric_names.queried_metrics(alert["expr"])
    assert metrics <= metric_names.published_metrics(tmp_path)
    named_labels = set(re.findall(r"\$labels\.(\w+)", "".join(alert["annotations"].values())))
    known_labels = {label for name in metrics & METRICS.keys() for label in METRICS[name].labels}
    assert named_labels <= known_labels


@pytest.mark.parametrize("alert", EVERY.values(), ids=EVERY)
def test_the_page_has_a_section_with_the_alert_s_severity(alert: dict[str, Any]) -> None:
    page = (_REPOSITORY / "docs/monitoring.md").read_text(encoding="utf-8")
    section = page.partition(f"### {alert['alert']}\n\n")[2]
    words = alert["annotations"]["description"].rpartition("`lockstep ")[2].partition("`")[0]
    assert CliRunner().invoke(main, words.split()).exit_code == 0
    assert section.startswith(alert["labels"]["severity"]), section[:80]


def test_a_threshold_is_the_host_s_own() -> None:
    plan = spark(expected={"free_disk_gib": 7.0}, gpu={"max_clock_mhz": 1900})
    text = rules_text(plan.settings)
    assert f"< {7 * 1024**3}" in text and " 7 GiB" in text and "1900 MHz" in text
    # Without a cap or a recorded host nothing is judged of one.
    without_either = rules_text(spark().settings)
    assert "ClockCapLost" not in without_either and "PeerSilent" not in without_either


def test_a_host_may_be_called_like_a_metric() -> None:
    document = yaml.safe_load(rules_text(spark(name="lockstep_a").settings, ("lockstep_b",)))
    alerts = {rule["alert"]: rule for rule in document["groups"][0]["rules"]}
    assert alerts["GpuHot"]["labels"]["instance"] == "lockstep_a"
    assert alerts["GpuHot"]["expr"] == 'lockstep_gpu_hot{job!="peer"} == 1'


DASHBOARDS = sorted((_REPOSITORY / "docs/dashboards").glob("*.json"))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_each_panel_asks_for_metrics_that_exist_of_the_chosen_spark(file: Path, tmp_path: Path):
    published_names = metric_names.published_metrics(tmp_path)
    groups = []
    for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            names = metric_names.queried_metrics(target["expr"])
            assert names and names <= published_names, (panel["title"], names - published_names)
            # A recorded Spark's figures are not taken for this one's.
            own = [name for name in names if name.startswith(("lockstep_", "node_"))]
            of_both = [name for name in own if "gateway" not in name]
            assert not of_both or 'job!="peer"' in target["expr"], panel["title"]
            # A rule of the same name twice in a group is a fault of its own.
            rule = {"record": "r", "expr": target["expr"].replace("$__rate_interval", "1m")}
            groups.append({"name": f"{len(groups)}", "rules": [rule]})
        assert panel["datasource"]["uid"] == "${source}"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    result = run(["promtool", "check", "rules", "--lint=none", tmp_path / "rules.yml"])
    assert result.returncode == 0, result.stdout + result.stderr
