"""What runs on a monitored host: packages, units, listeners, and the configuration by promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import metric_names
import pytest
import yaml
from monitored import ON, hosts, written
from tools import run

from lockstep.deploy.questions import questions
from lockstep.host.intended import Intended
from lockstep.monitoring import stack
from lockstep.monitoring.stack import SERIES
from lockstep.onhost.monitoring.metrics import METRICS
from lockstep.system.firewall import RULES


def scraped(this: Intended) -> dict[str, Any]:
    """Job → its configuration."""
    found = yaml.safe_load(written(this, "prometheus.yml"))
    return {job["job_name"]: job for job in found["scrape_configs"]}


def test_off_by_default() -> None:
    (this,) = hosts({})
    assert list(stack.monitoring_files(this.plan)) == []
    assert stack.units(this.plan) == [] and stack.listening(this.plan) == {}
    assert not {*stack.PACKAGED_UNITS} & {*this.packages}


def test_each_part_runs_where_the_inventory_says() -> None:
    one, two, three = hosts(ON, {**ON, "alertmanager": False}, {**ON, "prometheus": False})
    assert one.packages[-3:] == [*stack.PACKAGED_UNITS]
    assert two.packages[-2:] == [stack.EXPORTER, stack.PROMETHEUS]
    assert three.packages[-1:] == [stack.EXPORTER] and stack.PROMETHEUS not in three.packages
    for this in (one, two, three):
        files = {Path(file.path).name for file in stack.monitoring_files(this.plan)}
        units = stack.units(this.plan)
        configurations = {"prometheus.yml", "prometheus-rules.yml", "alertmanager.yml"}
        assert files - configurations == {*units}
        # The deploy asks for their state, and systemd starts them at boot.
        assert {*units} <= {*questions(this)["units"]}
        assert all("\n[Install]\nWantedBy=" in written(this, unit) for unit in units)
    assert "alerting" not in yaml.safe_load(written(two, "prometheus.yml"))


def test_it_scrapes_itself_through_loopback() -> None:
    (this,) = hosts(ON)
    jobs = scraped(this)
    label = {"host": "spark-1"}
    assert jobs["node"]["static_configs"] == [{"targets": ["127.0.0.1:9100"], "labels": label}]
    assert jobs["gateway"]["static_configs"] == [{"targets": ["127.0.0.1:8090"], "labels": label}]
    engines = {
        each["labels"]["target"]: each["targets"] for each in jobs["engine"]["static_configs"]
    }
    # Mistral's is behind a door of the gateway; no engine itself asks for a key.
    assert engines == {
        "qwen": ["127.0.0.1:30001"],
        "mistral": ["127.0.0.1:31000"],
        "mistral-vllm": ["127.0.0.1:8000"],
    }


def test_listeners_are_on_loopback_and_the_exporter_is_open_to_its_recorder() -> None:
    one, two = hosts(ON, ON)
    assert stack.listening(one.plan) == {
        9100: ["127.0.0.1", "10.77.0.1"],
        9090: ["127.0.0.1"],
        9093: ["127.0.0.1"],
        6666: ["10.77.0.1"],
    }
    assert "ip saddr { 10.77.0.2/32 } tcp dport 9100 accept" in written(
        one, Path(RULES).name
    ) and "dport 9090" not in written(one, Path(RULES).name)
    (alone,) = hosts(ON)
    assert stack.listening(alone.plan)[9100] == ["127.0.0.1"]
    assert "9100" not in written(alone, Path(RULES).name)
    assert written(alone, stack.EXPORTER_SOCKET).count("ListenStream=") == 1
    assert "FreeBind=yes" in written(two, stack.EXPORTER_SOCKET)


def test_prometheus_on_the_fast_link_is_open_to_the_monitored_hosts_alone() -> None:
    one, two = hosts({**ON, "bind": "fabric", "prometheus_port": 9999}, ON)
    assert stack.listening(one.plan)[9999] == ["10.77.0.1"]
    assert "--web.listen-address=10.77.0.1:9999" in written(one, stack.PROMETHEUS_UNIT)
    assert "ip saddr { 10.77.0.2/32 } tcp dport 9999 accept" in written(one, Path(RULES).name)
    assert "9999" not in written(two, Path(RULES).name)


def test_it_looks_at_whom_it_records_each_second_and_keeps_little() -> None:
    one, _ = hosts(ON, {**ON, "exporter_port": 9111})
    twin = scraped(one)["twin"]
    assert twin["static_configs"] == [
        {"targets": ["10.77.0.2:9111"], "labels": {"host": "spark-2"}}
    ]
    assert (twin["scrape_interval"], twin["scrape_timeout"]) == ("1s", "1s")
    assert "textfile" in twin["params"]["collect[]"]
    (kept,) = twin["metric_relabel_configs"]
    assert kept["action"] == "keep" and "lockstep_gpu_clock_hertz" in kept["regex"].split("|")
    assert "lockstep_drift_differences" not in kept["regex"]
    assert "twin" not in scraped(hosts(ON)[0])


def test_what_a_black_box_keeps_is_told_by_somebody() -> None:
    known = {*METRICS, *metric_names.NODE}
    assert {*SERIES} <= known
    # Each second, or what changes with the model.
    assert {name for name, each in METRICS.items() if each.every_s == 1} <= {*SERIES}


def test_a_gateway_that_asks_for_a_key_is_asked_with_one_that_only_systemd_reads() -> None:
    keys = {**ON, "gateway_key": "/root/metrics.key"}
    local = {"gateway": {"local_keys": True}, "webui": {"enabled": False}}
    (this,) = hosts(keys, **local)
    said = scraped(this)["gateway"]["authorization"]["credentials_file"]
    assert said == "/run/credentials/lockstep-prometheus.service/gateway-key"
    unit = written(this, stack.PROMETHEUS_UNIT)
    assert "LoadCredential=gateway-key:/root/metrics.key\n" in unit
    assert "authorization" not in scraped(hosts(ON)[0])["gateway"]


@pytest.mark.parametrize(
    ("unit", "change"),
    [
        (stack.EXPORTER_UNIT, {"exporter_port": 9111}),
        (stack.PROMETHEUS_UNIT, {"retention_gib": 9}),
        (stack.PROMETHEUS_UNIT, {"alertmanager": False}),
        (stack.ALERTMANAGER_UNIT, {"alertmanager_port": 9999}),
        (stack.METRICS_UNIT, {"alertmanager_port": 9999}),
        ("lockstep-netconsole-spark-2.service", {"netconsole_port": 7777}),
    ],
)
def test_a_change_restarts_what_reads_it(unit: str, change: dict[str, Any]) -> None:
    before, after = hosts(ON, ON)[0], hosts({**ON, **change}, ON)[0]
    assert key(before, unit) != key(after, unit)
    assert key(hosts(ON, ON)[0], unit) == key(before, unit)


def key(this: Intended, unit: str) -> list[str]:
    text = written(this, unit)
    return [line for line in text.splitlines() if "LOCKSTEP_GENERATION" in line]


def test_prometheus_and_alertmanager_accept_their_configuration(tmp_path: Path) -> None:
    this, _ = hosts(ON, ON)
    for name, check in (
        ("prometheus.yml", ["promtool", "check", "config", "--syntax-only"]),
        ("alertmanager.yml", ["amtool", "check-config"]),
    ):
        file = tmp_path / name
        file.write_text(written(this, name))
        done = run([*check, file])
        assert done.returncode == 0, done.stdout + done.stderr
