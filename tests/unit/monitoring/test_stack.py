"""A monitored host: packages, units, listeners, and the configuration by promtool."""

import os
import re
from pathlib import Path
from typing import Any

import metric_names
import pytest
from monitored_spark import ON, file_text, hosts
from tools import run

from lockstep.deploy.questions import questions
from lockstep.monitoring import netconsole, stack
from lockstep.monitoring.stack import SERIES
from lockstep.onhost.monitoring.metric_table import METRICS
from lockstep.system.firewall import RULES


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
    assert "alerting" not in file_text(two, "prometheus.yml")


def test_prometheus_asks_and_keeps_what_it_did_and_gets_its_key_from_systemd() -> None:
    """The whole file; after a change that is meant, run this with UPDATE_GOLDEN=1."""
    local = {"gateway": {"local_keys": True}, "webui": {"enabled": False}}
    keys = {**ON, "gateway_key": "/root/metrics.key"}
    first, _ = hosts(keys, {**keys, "exporter_port": 9111}, **local)
    golden = Path(__file__).with_name("prometheus.yml")
    text = file_text(first, golden.name)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    result = run(["promtool", "check", "config", "--syntax-only", golden])
    assert result.returncode == 0, result.stdout + result.stderr
    unit = file_text(first, stack.PROMETHEUS_UNIT)
    assert "LoadCredential=gateway-key:/root/metrics.key\n" in unit
    # Each of the series is told by somebody.
    assert {*SERIES} <= {*METRICS, *metric_names.NODE}
    alone = file_text(hosts(ON)[0], golden.name)
    assert "job_name: peer" not in alone and "authorization" not in alone


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
    # Prometheus on the fast link is open to the monitored hosts alone.
    first, two = hosts({**ON, "bind": "fabric", "prometheus_port": 9999}, ON)
    assert stack.listening(first.plan)[9999] == ["10.77.0.1"]
    assert "--web.listen-address=10.77.0.1:9999" in file_text(first, stack.PROMETHEUS_UNIT)
    assert "ip saddr { 10.77.0.2/32 } tcp dport 9999 accept" in file_text(first, Path(RULES).name)
    assert "9999" not in file_text(two, Path(RULES).name)


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
    keys = [
        re.findall("LOCKSTEP_RESTART_KEY=.*", file_text(hosts({**ON, **more}, ON)[0], unit))
        for more in ({}, {}, change)
    ]
    assert keys[0] == keys[1] != keys[2]


def test_a_kernel_s_messages_go_to_the_recorder_and_from_whom_it_records() -> None:
    first, _ = hosts(ON, {**ON, "netconsole_port": 7000})
    socket, service = (f"lockstep-netconsole-spark-2.{kind}" for kind in ("socket", "service"))
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
    # Where a kernel is to be silent, nothing sends and nothing listens.
    first, two = hosts({**ON, "netconsole": False}, ON)
    assert netconsole.SENDER not in stack.units(first.plan)
    assert netconsole.units(two.plan.ring) == [netconsole.SENDER]
    assert 6666 not in stack.listening(two.plan)
    assert "udp dport 6666" not in file_text(two, Path(RULES).name)
    (alone,) = hosts(ON)
    assert netconsole.units(alone.plan.ring) == []
    assert not list(netconsole.netconsole_files(alone.plan))
