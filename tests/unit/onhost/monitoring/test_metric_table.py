"""The table of metrics, and the text that Prometheus reads."""

from __future__ import annotations

import re

import pytest

from lockstep.onhost.monitoring.metric_table import METRICS, MetricSample, prometheus_text


def test_names_follow_the_convention_of_prometheus() -> None:
    endings = {"seconds": "_seconds", "bytes": "_bytes", "hertz": "_hertz", "watts": "_watts"}
    for name, metric in METRICS.items():
        assert re.fullmatch(r"lockstep_[a-z_]+", name)
        assert name.endswith("_total") == (metric.type == "counter"), name
        assert name.endswith(endings.get(metric.unit, "")), name
        assert metric.help.endswith(".") and metric.source, name


def test_samples_become_the_text_that_the_textfile_collector_reads() -> None:
    metrics_text = prometheus_text(
        [
            MetricSample("lockstep_gpu_power_watts", 61.5, {}),
            MetricSample("lockstep_failed_unit", 1, {"unit": 'a"b\\c.service'}),
            MetricSample("lockstep_failed_unit", 1, {"unit": "d.service"}),
        ]
    )
    assert metrics_text == (
        "# HELP lockstep_gpu_power_watts Power of the GPU alone.\n"
        "# TYPE lockstep_gpu_power_watts gauge\n"
        "lockstep_gpu_power_watts 61.5\n"
        "# HELP lockstep_failed_unit 1 for a unit that systemd gave up.\n"
        "# TYPE lockstep_failed_unit gauge\n"
        'lockstep_failed_unit{unit="a\\"b\\\\c.service"} 1\n'
        'lockstep_failed_unit{unit="d.service"} 1\n'
    )


@pytest.mark.parametrize(
    "sample",
    [
        MetricSample("lockstep_unheard_of", 1, {}),
        MetricSample("lockstep_failed_unit", 1, {}),
        MetricSample("lockstep_gpu_power_watts", 1, {"host": "spark-1"}),
    ],
    ids=lambda sample: sample.name,
)
def test_what_the_table_does_not_have_is_refused(sample: MetricSample) -> None:
    with pytest.raises(ValueError, match=sample.name):
        prometheus_text([sample])
