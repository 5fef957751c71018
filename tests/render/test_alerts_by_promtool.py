"""The alert rules by the real promtool: each fires for its cause, and for nothing ordinary."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import metric_names
import pytest
import tools
import yaml
from a_spark import spark

from lockstep.monitoring.rules import rules_text

pytestmark = pytest.mark.slow

PLAN = spark("spark1", gpu={"max_clock_mhz": 2100})
TEXT = rules_text(PLAN.settings, ["spark2"])
EVERY = metric_names.alert_rules(TEXT)
GIB = 1024**3
CERTIFICATE = 'lockstep_certificate_expiry_timestamp_seconds{path="/etc/ssl/spark.pem"}'
DAY = 86400
#: An hour of a host that is well, in promtool's notation: value, plus a step, times.
WELL = {
    'lockstep_wanted_hot{model="qwen"}': "1x120",
    'lockstep_hot_model{model="qwen"}': "1x120",
    "lockstep_switch_running": "0x120",
    "lockstep_deploy_running": "0x120",
    'lockstep_engine_wedged{model="qwen"}': "0x120",
    'lockstep_sense_ok{model="qwen"}': "1x120",
    "lockstep_memory_available_bytes": f"{20 * GIB}x120",
    'lockstep_memory_minimum_bytes{model="qwen", phase="loading"}': f"{8 * GIB}x120",
    'lockstep_memory_minimum_bytes{model="qwen", phase="serving"}': f"{4 * GIB}x120",
    'lockstep_wedge_deed_timestamp_seconds{model="mistral"}': "-7200x120",
    "lockstep_gpu_hot": "0x120",
    "lockstep_gpu_slow": "0x120",
    "lockstep_gpu_foreign": "0x120",
    "lockstep_gpu_clock_cap_held": "1x120",
    "lockstep_disk_free_bytes": f"{200 * GIB}x120",
    'lockstep_drift_differences{severity="error"}': "0x120",
    'lockstep_drift_differences{severity="note"}': "2x120",
    "lockstep_boot_unclean": "0x120",
    'lockstep_failed_unit{unit="lockstep-switch.service"}': "1x120",
    'lockstep_failed_unit{unit="sglang-mistral4.service"}': "1x120",
    'lockstep_failed_unit{unit="sglang-mistral4-fallback.service"}': "1x120",
    CERTIFICATE: f"{90 * DAY}x120",
    "lockstep_backup_last_success_timestamp_seconds": "0x120",
    "lockstep_metrics_written_timestamp_seconds": "0+30x120",
    'lockstep_gateway_refusals_total{reason="no answer"}': "7x120",
    'vllm:request_success_total{finished_reason="error"}': "2x120",
    'up{job="peer", host="spark2"}': "1x120",
    # What is recorded of another host is not this one's.
    'lockstep_memory_available_bytes{job="peer"}': f"{1 * GIB}x120",
    'lockstep_gpu_slow{job="peer"}': "1x120",
}


def expect_alerts(
    folder: Path, series: Mapping[str, str], minutes: Sequence[float], *names: str
) -> None:
    """Expect exactly these alerts at each of the minutes."""
    hosts = {name: "spark2" if name == "PeerSilent" else "spark1" for name in names}
    labels = [f'{{alertname="{name}", instance="{host}"}}' for name, host in hosts.items()]
    every = 'count by (alertname, instance) (ALERTS{alertstate="firing", subject!=""})'
    test = {
        "promql_expr_test": [
            {
                "expr": every,
                "eval_time": f"{minute * 60:.0f}s",
                "exp_samples": [{"labels": label, "value": 1} for label in labels],
            }
            for minute in minutes
        ]
    }
    run_test(folder, series, test)


def run_test(folder: Path, series: Mapping[str, str], test: dict[str, Any]) -> None:
    rows = [{"series": name, "values": values} for name, values in series.items()]
    whole = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [{"interval": "30s", "input_series": rows, **test}],
    }
    files = {"rules.yml": TEXT, "test.yml": yaml.safe_dump(whole)}
    result = tools.run(["promtool", "test", "rules", tools.write_files(folder, files)[1]])
    assert result.returncode == 0, result.stdout + result.stderr


# Alert → what is not well from the twentieth minute on, and when it must fire.
CAUSES: dict[str, tuple[dict[str, str], float]] = {
    "HotModelGone": ({'lockstep_hot_model{model="qwen"}': "1x40 stale _x78"}, 23),
    "EngineWedged": (
        {
            'lockstep_wedge_deed_timestamp_seconds{model="qwen"}': "_x40 1200x79",
            'lockstep_engine_wedged{model="qwen"}': "0x42 1x77",
            'lockstep_hot_model{model="qwen"}': "1x40 stale _x78",
        },
        50,
    ),
    "ModelTalksNonsense": ({'lockstep_sense_ok{model="qwen"}': "1x40 0x79"}, 21),
    "MemoryNearMinimum": (
        {"lockstep_memory_available_bytes": f"{20 * GIB}x40 {4.5 * GIB:.0f}x79"},
        22,
    ),
    "EndedBelowMemoryMinimum": (
        {
            'lockstep_memory_minimum_ended{model="qwen"}': "_x40 1x79",
            'lockstep_hot_model{model="qwen"}': "1x40 stale _x78",
        },
        30,
    ),
    "EngineErrors": ({'lockstep_gateway_refusals_total{reason="no answer"}': "7x40 7+1x79"}, 28),
    "GpuHot": ({"lockstep_gpu_hot": "0x40 1x79"}, 21),
    "GpuSlow": ({"lockstep_gpu_slow": "0x40 1x79"}, 21),
    "ForeignEngine": ({"lockstep_gpu_foreign": "0x40 1x79"}, 21),
    "ClockCapLost": ({"lockstep_gpu_clock_cap_held": "1x40 0x79"}, 24),
    "DiskFull": ({"lockstep_disk_free_bytes": f"{200 * GIB}x40 {19 * GIB}x79"}, 26),
    "FailedUnit": ({'lockstep_failed_unit{unit="fstrim.service"}': "_x40 1x79"}, 22),
    "GatewayDown": ({'up{job="gateway"}': "1x40 0x79"}, 22),
    "UncleanBoot": ({"lockstep_boot_unclean": "0x40 1x79"}, 21),
    "MetricsStopped": ({"lockstep_metrics_written_timestamp_seconds": "0+30x40 1200x79"}, 26),
    "Drift": ({'lockstep_drift_differences{severity="error"}': "0x40 3x79"}, 31),
    "CertificateOld": ({CERTIFICATE: f"{10 * DAY + 90 * 60}x240"}, 90),
    "BackupOld": (
        {"lockstep_backup_last_success_timestamp_seconds": f"{-3 * DAY + 90 * 60}x240"},
        90,
    ),
    "PeerSilent": ({'up{job="peer", host="spark2"}': "1x40 0x79"}, 23),
}


@pytest.mark.parametrize("name", EVERY)
def test_an_alert_fires_for_its_cause_and_no_other_with_it(name: str, tmp_path: Path) -> None:
    changed_series, minute = CAUSES[name]
    longer = {series_name: values.replace("x120", "x240") for series_name, values in WELL.items()}
    series = (longer if minute > 60 else WELL) | changed_series
    expect_alerts(tmp_path, series, [minute], name)


# What looks like a cause for a while, or is none.
ORDINARY: dict[str, dict[str, str]] = {
    # The old model is gone at once; the new one loads for 20 minutes and is wanted when it is hot.
    "a switch with 20 minutes of loading": {
        'lockstep_wanted_hot{model="qwen"}': "1x80 stale _x38",
        'lockstep_wanted_hot{model="mistral"}': "_x80 1x39",
        'lockstep_hot_model{model="qwen"}': "1x40 stale _x78",
        'lockstep_hot_model{model="mistral"}': "_x80 1x39",
        'lockstep_loading_model{model="mistral"}': "_x41 1x39 stale _x38",
        "lockstep_switch_running": "0x40 1x40 0x39",
        "lockstep_memory_available_bytes": f"{20 * GIB}x40 {4.5 * GIB:.0f}x40 {20 * GIB}x39",
        'lockstep_gateway_refusals_total{reason="no answer"}': "7x40 47x79",
    },
    "an engine that crashed and loads again": {
        'lockstep_hot_model{model="qwen"}': "1x40 stale _x38 1x39",
        'lockstep_loading_model{model="qwen"}': "_x43 1x36 stale _x38",
    },
    "an engine that hung and was restarted, six minutes later": {
        'lockstep_wedge_deed_timestamp_seconds{model="qwen"}': "-330x120",
    },
    "switch.sh none": {
        'lockstep_wanted_hot{model="qwen"}': "1x40 stale _x78",
        'lockstep_hot_model{model="qwen"}': "1x40 stale _x78",
    },
    "memory near the minimum for half a minute": {
        "lockstep_memory_available_bytes": f"{20 * GIB}x40 {4.5 * GIB:.0f} {20 * GIB}x78",
    },
    "memory of a model that fits tightly": {
        "lockstep_memory_available_bytes": f"{5.2 * GIB:.0f}x120",
    },
    "an engine that gives five requests no answer": {
        'lockstep_gateway_refusals_total{reason="no answer"}': "7x40 11x79",
    },
    "a cap that the wedge watch sets again": {"lockstep_gpu_clock_cap_held": "1x40 0x2 1x77"},
    "a disk with just enough space": {"lockstep_disk_free_bytes": f"{20.5 * GIB:.0f}x120"},
    "a unit that fails and is started again": {
        'lockstep_failed_unit{unit="fstrim.service"}': "_x40 1 stale _x77"
    },
    "a boot of the peer": {'up{job="peer", host="spark2"}': "1x40 0x3 1x76"},
    "a backup of yesterday": {"lockstep_backup_last_success_timestamp_seconds": f"{-DAY}x120"},
    "a certificate for 22 days": {CERTIFICATE: f"{22 * DAY}x120"},
    "a comparison while a deploy is under way": {
        'lockstep_drift_differences{severity="error"}': "0x40 4x10 0x69"
    },
}


@pytest.mark.parametrize("situation", ["a host that is well", *ORDINARY])
def test_what_is_ordinary_raises_none(situation: str, tmp_path: Path) -> None:
    minutes = [half_minute / 2 for half_minute in range(119)]
    expect_alerts(tmp_path, WELL | ORDINARY.get(situation, {}), minutes)


def test_without_any_metric_the_host_says_that_it_is_blind(tmp_path: Path) -> None:
    expect_alerts(tmp_path, {"up": "1x120"}, [30], "MetricsStopped")


@pytest.mark.parametrize("job", ["switch", "deploy"])
def test_a_job_keeps_alerts_back_while_the_writer_tells_of_it(job: str, tmp_path: Path) -> None:
    series = {
        f"lockstep_{job}_running": "0x40 1x79",
        "lockstep_metrics_written_timestamp_seconds": "0+30x60 1800x59",
    }
    name = f"{job.title()}Running"
    alert = {"exp_labels": {"receiver": "nobody", "instance": "spark1"}}
    tests = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [alert] * fires}
        for minute, fires in ((19, 0), (21, 1), (31, 1), (33, 0))
    ]
    run_test(tmp_path, series, {"alert_rule_test": tests})
