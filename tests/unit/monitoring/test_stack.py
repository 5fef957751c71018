"""A monitored host: packages, units, listeners, and the configuration by promtool."""

from pathlib import Path
from typing import Any

import metric_names
import pytest
import yaml
from monitored_spark import ON, file_text, hosts
from tools import run

from lockstep.deploy.questions import questions
from lockstep.host.desired_state import DesiredState
from lockstep.monitoring import netconsole, stack
from lockstep.monitoring.stack import SERIES
from lockstep.onhost.monitoring.metric_table import METRICS
from lockstep.system.firewall import RULES

RECEIVER = "lockstep-netconsole-spark-2"


def scrape_jobs(state: DesiredState) -> dict[str, Any]:
    """Job → its configuration."""
    document = yaml.safe_load(file_text(state, "prometheus.yml"))
    return {job["job_name"]: job for job in document["scrape_configs"]}


def test_each_part_runs_where_the_inventory_says() -> None:
    first, two, three = hosts(ON, {**ON, "alertmanager": False}, {**ON, "prometheus": False})
    assert first.packages[-3:] == [*stack.PACKAGED_UNITS]
    assert two.packages[-2:] == [stack.EXPORTER, stack.PROMETHEUS]
    assert three.packages[-1:] == [stack.EXPORTER] and stack.PROMETHEUS not in three.packages
    for state in (first, two, three):
        files = {Path(file.path).name for file in stack.monitoring_files(state.plan)}
        units = stack.units(state.plan)
        configurations = {"prometheus.yml", "prometheus-rules.yml", "alertmanager.yml"}
        assert files - configurations == {*units}
        # The deploy asks for their state, and systemd starts them at boot.
        assert {*units} <= {*questions(state)["units"]["programs"]}
        assert all("\n[Install]\nWantedBy=" in file_text(state, unit) for unit in units)
    assert "alerting" not in yaml.safe_load(file_text(two, "prometheus.yml"))


def test_it_scrapes_itself_through_loopback() -> None:
    jobs = scrape_jobs(hosts(ON)[0])
    label = {"host": "spark-1"}
    assert jobs["node"]["static_configs"] == [{"targets": ["127.0.0.1:9100"], "labels": label}]
    assert jobs["gateway"]["static_configs"] == [{"targets": ["127.0.0.1:8090"], "labels": label}]
    # Mistral's is behind a listener of the gateway; no engine itself asks for a key.
    engines = {job["labels"]["model"]: job["targets"] for job in jobs["engine"]["static_configs"]}
    assert [*engines.values()] == [["127.0.0.1:30001"], ["127.0.0.1:31000"], ["127.0.0.1:8000"]]


def test_listeners_are_on_loopback_and_the_exporter_is_open_to_its_recorder() -> None:
    first, two = hosts(ON, ON)
    assert stack.listening(first.plan) == {
        9100: ["127.0.0.1", "10.77.0.1"],
        9090: ["127.0.0.1"],
        9093: ["127.0.0.1"],
        6666: ["10.77.0.1"],
    }
    rules = file_text(first, Path(RULES).name)
    assert "ip saddr { 10.77.0.2/32 } tcp dport 9100 accept" in rules and "dport 9090" not in rules
    (alone,) = hosts(ON)
    assert stack.listening(alone.plan)[9100] == ["127.0.0.1"]
    assert "9100" not in file_text(alone, Path(RULES).name)
    assert file_text(alone, stack.EXPORTER_SOCKET).count("ListenStream=") == 1
    assert "FreeBind=yes" in file_text(two, stack.EXPORTER_SOCKET)


def test_prometheus_on_the_fast_link_is_open_to_the_monitored_hosts_alone() -> None:
    first, two = hosts({**ON, "bind": "fabric", "prometheus_port": 9999}, ON)
    assert stack.listening(first.plan)[9999] == ["10.77.0.1"]
    assert "--web.listen-address=10.77.0.1:9999" in file_text(first, stack.PROMETHEUS_UNIT)
    assert "ip saddr { 10.77.0.2/32 } tcp dport 9999 accept" in file_text(first, Path(RULES).name)
    assert "9999" not in file_text(two, Path(RULES).name)


def test_it_looks_at_whom_it_records_each_second_and_keeps_little() -> None:
    first, _ = hosts(ON, {**ON, "exporter_port": 9111})
    peer = scrape_jobs(first)["peer"]
    assert peer["static_configs"] == [
        {"targets": ["10.77.0.2:9111"], "labels": {"host": "spark-2"}}
    ]
    assert (peer["scrape_interval"], peer["scrape_timeout"]) == ("1s", "1s")
    assert "textfile" in peer["params"]["collect[]"]
    (rule,) = peer["metric_relabel_configs"]
    assert rule["action"] == "keep" and "lockstep_gpu_clock_hertz" in rule["regex"].split("|")
    assert "lockstep_drift_differences" not in rule["regex"]
    # Each of them is told by somebody.
    assert {*SERIES} <= {*METRICS, *metric_names.NODE}
    assert "peer" not in scrape_jobs(hosts(ON)[0])


def test_a_gateway_that_asks_for_a_key_is_asked_with_one_that_only_systemd_reads() -> None:
    keys = {**ON, "gateway_key": "/root/metrics.key"}
    local = {"gateway": {"local_keys": True}, "webui": {"enabled": False}}
    (first,) = hosts(keys, **local)
    credentials_file = scrape_jobs(first)["gateway"]["authorization"]["credentials_file"]
    assert credentials_file == "/run/credentials/lockstep-prometheus.service/gateway-key"
    unit = file_text(first, stack.PROMETHEUS_UNIT)
    assert "LoadCredential=gateway-key:/root/metrics.key\n" in unit
    assert "authorization" not in scrape_jobs(hosts(ON)[0])["gateway"]


@pytest.mark.parametrize(
    ("unit", "change"),
    [
        (stack.EXPORTER_UNIT, {"exporter_port": 9111}),
        (stack.PROMETHEUS_UNIT, {"retention_gib": 9}),
        (stack.PROMETHEUS_UNIT, {"alertmanager": False}),
        (stack.ALERTMANAGER_UNIT, {"alertmanager_port": 9999}),
        ("lockstep-netconsole-spark-2.service", {"netconsole_port": 7777}),
    ],
)
def test_a_change_restarts_what_reads_it(unit: str, change: dict[str, Any]) -> None:
    first, changed_state = hosts(ON, ON)[0], hosts({**ON, **change}, ON)[0]
    assert key(first, unit) != key(changed_state, unit)
    assert key(hosts(ON, ON)[0], unit) == key(first, unit)


def key(state: DesiredState, unit: str) -> list[str]:
    text = file_text(state, unit)
    return [line for line in text.splitlines() if "LOCKSTEP_RESTART_KEY" in line]


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(file_text(hosts(ON, ON)[0], file.name))
    result = run(["promtool", "check", "config", "--syntax-only", file])
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_kernel_s_messages_go_to_the_recorder_and_from_whom_it_records() -> None:
    first, _ = hosts(ON, {**ON, "netconsole_port": 7000})
    socket, service = f"{RECEIVER}.socket", f"{RECEIVER}.service"
    assert netconsole.units(first.plan.ring) == [socket, service, netconsole.SENDER]
    assert {*netconsole.units(first.plan.ring)} <= {*stack.units(first.plan)}
    sender = file_text(first, netconsole.SENDER)
    assert "netconsole send 10.77.0.1 10.77.0.2 7000\n" in sender
    assert "ExecStopPost=/usr/bin/python3 /usr/local/lib/lockstep netconsole end\n" in sender
    assert "ListenDatagram=10.77.0.1:6666\n" in file_text(first, socket)
    assert "SyslogIdentifier=netconsole-spark-2\n" in file_text(first, service)
    # Its port is open to the sender alone.
    rules = file_text(first, Path(RULES).name)
    assert 'ip saddr { 10.77.0.2/32 } udp dport 6666 accept comment "kernel of spark-2"' in rules
    assert rules.count("6666") == 1
    assert "IPAddressDeny=any\nIPAddressAllow=10.77.0.2\n" in file_text(first, socket)


def test_where_a_kernel_is_to_be_silent_nothing_sends_and_nothing_listens() -> None:
    first, two = hosts({**ON, "netconsole": False}, ON)
    assert netconsole.SENDER not in stack.units(first.plan)
    assert netconsole.units(two.plan.ring) == [netconsole.SENDER]
    assert 6666 not in stack.listening(two.plan)
    assert "udp dport 6666" not in file_text(two, Path(RULES).name)
    (alone,) = hosts(ON)
    assert netconsole.units(alone.plan.ring) == []
    assert not list(netconsole.netconsole_files(alone.plan))
