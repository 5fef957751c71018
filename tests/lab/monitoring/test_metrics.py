"""Monitoring with the real Prometheus, Alertmanager and node_exporter: on, again, and gone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import metric_names
import pytest
from stack import Deployed, Host, Stack, until

from lockstep.monitoring import stack as monitoring
from lockstep.onhost.monitoring.metrics import METRICS

NODE, PROMETHEUS, ALERTMANAGER = 9100, 9090, 9093
#: Without a hot model, a diff, a cap of the clock and the like.
ALWAYS = {
    *(name for name, metric in METRICS.items() if metric.every_s == 1),
    *("lockstep_deploy_running", "lockstep_generation", "lockstep_boot_unclean"),
    *("lockstep_switches_total", "lockstep_gpu_hot", "lockstep_gpu_slow"),
    "lockstep_disk_free_bytes",
}
RECORD = "/var/lib/lockstep-deploy/packages.json"
FILES = f"/etc/lockstep/prometheus* /etc/lockstep/alertmanager* {monitoring.TEXTFILES}"
DATA = "/var/lib/lockstep-prometheus /var/lib/private/lockstep-* /var/lib/lockstep-alertmanager"


@pytest.fixture(scope="module")
def monitored(stack: Stack, first: Deployed) -> Iterator[Stack]:
    """Both hosts with monitoring, in a ring of two; taken out of the inventory it is gone."""
    assert first.code == 0, first.output[-8000:]
    accounts = {host.name: host.root("getent passwd | cut -d: -f1 | sort") for host in stack.hosts}
    listed = {host.name: host.root("dpkg-query -W -f '${Package}\\n'") for host in stack.hosts}
    fabric = {f"{host.name}__fabric_address": address(host) for host in stack.hosts}
    inventory = stack.inventory("monitored", monitoring={"enabled": True}, **fabric)
    stack.good_deploy("-y", inventory=inventory)
    assert stack.good_deploy("-y", inventory=inventory).changed == set()
    yield stack
    done = stack.good_deploy()
    assert "Monitoring | Purge packages that monitoring brought" in done.changed
    for host in stack.hosts:
        assert host.root(f"ls -d {FILES} {DATA} 2>/dev/null || true") == ""
        assert host.root("dpkg-query -W -f '${Package}\\n'") == listed[host.name]
        assert host.root("getent passwd | cut -d: -f1 | sort") == accounts[host.name]
        assert not any(json.loads(host.root(f"cat {RECORD}")).values())
        assert listeners(host) == {}
        for unit in (*monitoring.PACKAGED_UNITS.values(), monitoring.PROMETHEUS_UNIT):
            assert host.show(unit, "LoadState") == "not-found"
    assert stack.good_deploy().changed == set()
    drift = stack.diff()
    assert not any(word in drift.stdout for word in ("prometheus", "masked", "node-exporter"))


def address(host: Host) -> str:
    return host.root("hostname -I").split()[0]


def listeners(host: Host) -> dict[int, set[str]]:
    """Port of monitoring, or of a gossip that is off → addresses where something listens."""
    found: dict[int, set[str]] = {}
    for line in host.root("ss -Hltn").splitlines():
        there, _, port = line.split()[3].rpartition(":")
        if int(port) in (NODE, PROMETHEUS, ALERTMANAGER, 9094):
            found.setdefault(int(port), set()).add(there)
    return found


def series(host: Host, query: str) -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{PROMETHEUS}/api/v1/query?query={quote(query)}"
    found: list[dict[str, Any]] = host.get(url)["data"]["result"]
    return found


def test_each_host_scrapes_itself_and_the_writer_s_metrics_are_there(monitored: Stack) -> None:
    for host in monitored.hosts:
        until(
            lambda host=host: (
                {  # type: ignore[misc]
                    each["metric"]["job"] for each in series(host, "up == 1")
                }
                >= {"node", "gateway"}
            ),
            f"{host.name} has scraped its exporter and its gateway",
        )
        until(
            lambda host=host: (
                {  # type: ignore[misc]
                    each["metric"]["__name__"]
                    for each in series(host, '{__name__=~"lockstep_.*|node_.*",job="node"}')
                }
                >= ALWAYS | metric_names.NODE
            ),
            f"{host.name} has every metric that is always there",
        )
        (memory,) = series(host, 'lockstep_memory_available_bytes{job="node"}')
        assert memory["metric"]["host"] == host.name and float(memory["value"][1]) > 2**30
        broken = series(host, "node_textfile_scrape_error != 0")
        assert broken == []


def test_nothing_listens_but_what_the_documents_say(monitored: Stack) -> None:
    for host in monitored.hosts:
        assert listeners(host) == {
            NODE: {"127.0.0.1", address(host)},
            PROMETHEUS: {"127.0.0.1"},
            ALERTMANAGER: {"127.0.0.1"},
        }


def test_the_exporter_is_open_to_its_recorder(monitored: Stack) -> None:
    there = f"http://{address(monitored.one)}:{NODE}/metrics"
    said = monitored.two.root(f"curl -fsS --max-time 10 {there}")
    assert "lockstep_memory_available_bytes" in said


def test_the_packages_own_configuration_never_ran(monitored: Stack) -> None:
    """Every process of these names in the journal was one of a unit of ours."""
    for host in monitored.hosts:
        for unit in monitoring.PACKAGED_UNITS.values():
            assert host.show(unit, "LoadState") == "masked"
        names = ("prometheus", "prometheus-node", "prometheus-aler")
        matches = " ".join(f"_COMM={name}" for name in names)
        lines = host.root(f"journalctl -q -o json --output-fields=_SYSTEMD_UNIT {matches}")
        units = {json.loads(line).get("_SYSTEMD_UNIT") for line in lines.splitlines()}
        assert units == {
            monitoring.PROMETHEUS_UNIT,
            monitoring.EXPORTER_UNIT,
            monitoring.ALERTMANAGER_UNIT,
        }


def test_the_real_checkers_accept_what_runs(monitored: Stack) -> None:
    host = monitored.one
    host.root("promtool check config /etc/lockstep/prometheus.yml")
    assert series(host, "up{job='engine'}"), "engines are asked, whichever is hot"
    rules = host.get(f"http://127.0.0.1:{PROMETHEUS}/api/v1/rules")["data"]["groups"]
    health = {rule["health"] for group in rules for rule in group["rules"]}
    assert health and "err" not in health


def test_a_configuration_that_promtool_refuses_replaces_nothing(monitored: Stack) -> None:
    host, path = monitored.one, monitoring.PROMETHEUS_FILE
    before = host.root(f"cat {path}")
    wrong = {"path": path, "text": "# lockstep\nscrape_configs: 7\n", "check": "prometheus"}
    more = {"mode": "0644", "owner": "root", "group": "root"}
    asked = shlex.quote(json.dumps({"files": [{**wrong, **more}]}))
    program = "import json,sys; sys.path.insert(0, '/usr/local/lib/lockstep'); "
    program += "from lockstep.onhost.records import write_files; "
    program += "write_files.take(json.loads(sys.argv[1]))"
    answer = host.run(f"sudo -n python3 -c {shlex.quote(program)} {asked}")
    assert answer.code != 0 and "refused by its own checker" in answer.err
    assert host.root(f"cat {path}") == before
