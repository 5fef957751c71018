"""Monitoring with the real Prometheus, Alertmanager and node_exporter: on, again, and gone.

The last seconds of a host that lost its power or froze are on the host that records it.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import alerting
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
#: No machine of a lab says how warm its board is.
NOT_HERE = {"node_thermal_zone_temp"}
RECORD = "/var/lib/lockstep-deploy/packages.json"
FILES = (
    "/etc/lockstep/prometheus* /etc/lockstep/alertmanager* /etc/lockstep/secrets/alerts-*"
    f" {monitoring.TEXTFILES}"
)
TARGET = "/sys/kernel/config/netconsole/lockstep"
DATA = "/var/lib/lockstep-prometheus /var/lib/private/lockstep-* /var/lib/lockstep-alertmanager"


TOKEN = "tk-" + "f3" * 16


@pytest.fixture(scope="module")
def recorded(
    stack: Stack, first: Deployed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Both hosts with monitoring, in a ring of two; taken out of the inventory it is gone.

    The second one's Prometheus is at its fabric address, and tells a receiver that wants a token.
    Gives the inventory that has it.
    """
    assert first.code == 0, first.output[-8000:]
    accounts = {host.name: host.root("getent passwd | cut -d: -f1 | sort") for host in stack.hosts}
    listed = {host.name: host.root("dpkg-query -W -f '${Package}\\n'") for host in stack.hosts}
    fabric = {f"{host.name}__fabric_address": address(host) for host in stack.hosts}
    secret = tmp_path_factory.mktemp("secret") / "token"
    secret.write_text(TOKEN)
    hook = f"http://{alerting.ADDRESS}:{alerting.PORT}/"
    told = {"webhook": hook, "token": {"command": ("cat", str(secret))}}
    more = {"spark2__monitoring": {"enabled": True, "bind": "fabric", "tell": (told,)}}
    inventory = stack.inventory("monitored", monitoring={"enabled": True}, **fabric, **more)
    stack.good_deploy("-y", inventory=inventory)
    # That with a receiver: the other one has no more than this has.
    again = stack.good_deploy("-y", "--limit", "spark2", inventory=inventory)
    assert again.changed == set()
    for host in stack.hosts:
        until(lambda host=host: sends(host), f"{host.name} sends")  # type: ignore[misc]
    yield inventory
    done = stack.good_deploy()
    assert "Monitoring | Purge packages that monitoring brought" in done.changed
    for host in stack.hosts:
        assert host.root(f"ls -d {FILES} {DATA} 2>/dev/null || true") == ""
        assert host.root("dpkg-query -W -f '${Package}\\n'") == listed[host.name]
        assert host.root("getent passwd | cut -d: -f1 | sort") == accounts[host.name]
        noted = json.loads(host.root(f"cat {RECORD}"))["packages"]
        assert not [name for name in noted if name.startswith("prometheus")]
        assert listeners(host) == {}
        assert host.root(f"test ! -e {TARGET} && echo gone") == "gone\n"
        assert host.root("systemctl list-unit-files -q 'lockstep-netconsole*' || true") == ""
        for unit in (*monitoring.PACKAGED_UNITS.values(), monitoring.PROMETHEUS_UNIT):
            assert host.show(unit, "LoadState") == "not-found"
    drift = stack.diff("--limit", "spark1")
    assert not any(word in drift.stdout for word in ("prometheus", "masked", "node-exporter"))


@pytest.fixture
def monitored(stack: Stack, recorded: Path) -> Stack:
    """The lab with it."""
    return stack


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


def prometheus(host: Host) -> str:
    """Where a host's Prometheus listens."""
    return "127.0.0.1" if host.name == "spark1" else address(host)


def series(host: Host, query: str) -> list[dict[str, Any]]:
    url = f"http://{prometheus(host)}:{PROMETHEUS}/api/v1/query?query={quote(query)}"
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
                >= ALWAYS | metric_names.NODE - NOT_HERE
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
            PROMETHEUS: {prometheus(host)},
            ALERTMANAGER: {"127.0.0.1"},
        }


def test_the_exporter_is_open_to_its_recorder(monitored: Stack) -> None:
    there = f"http://{address(monitored.one)}:{NODE}/metrics"
    said = monitored.two.root(f"curl -fsS --max-time 10 {there}")
    assert "lockstep_memory_available_bytes" in said


def test_prometheus_at_the_fabric_is_open_to_its_recorded_hosts_alone(monitored: Stack) -> None:
    there = f"http://{address(monitored.two)}:{PROMETHEUS}/-/healthy"
    assert "Healthy" in monitored.one.root(f"curl -fsS --max-time 10 {there}")


def test_a_receiver_gets_its_token_and_only_root_s_file_has_it(
    stack: Stack, recorded: Path
) -> None:
    host = stack.two
    with alerting.Receiver(stack.name) as receiver:
        done = stack.lockstep("alert test", host.name, inventory=recorded)
        assert done.code == 0, done.text
    assert {told.authorization for told in receiver.told} == {f"Bearer {TOKEN}"}
    file = host.root("ls /etc/lockstep/secrets/alerts-*").strip()
    assert host.root(f"stat -c '%a %U' {file}").split() == ["600", "root"]
    # The host searches with the value read from the file: it is in no argument.
    others = "find /etc /run /tmp /var/tmp /var/log /root /home /usr/local -type f -size -4M"
    found = host.root(f"{others} ! -path {file} -exec grep -a -l -F -f {file} {{}} + || true")
    assert [path for path in found.splitlines() if not path.startswith("/run/credentials/")] == []
    lines = "{ ps -efww; systemctl cat '*'; journalctl --no-pager -a -o export; } 2>/dev/null"
    assert host.root(f"{lines} | grep -a -c -F -f {file} || true").strip() == "0"


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


def sends(host: Host) -> bool:
    return bool(host.look(f"cat {TARGET}/enabled").out.strip() == "1")


def say(host: Host, words: str, level: int = 3) -> None:
    """Have the kernel say something."""
    host.root(f"echo '<{level}>{words}' > /run/kmsg")


def blackbox(stack: Stack, inventory: Path, host: Host, *words: str) -> dict[str, Any]:
    done = stack.lockstep("blackbox", host.name, "--json", *words, inventory=inventory)
    assert done.code == 0, done.text
    found: dict[str, Any] = json.loads(done.out)
    return found


def seen_now(host: Host, by: Host) -> None:
    """Wait until a host has a sample of another one that is younger than a second."""
    sample = f'node_boot_time_seconds{{job="twin", host="{host.name}"}}'
    fresh = f"time() - timestamp({sample}) < 1"
    until(lambda: series(by, fresh), f"{by.name} records {host.name} each second")


def spoken(found: dict[str, Any]) -> list[str]:
    return [event["words"] for event in found["events"] if event["kind"] == "kernel"]


def test_a_power_cut(stack: Stack, recorded: Path) -> None:
    host = stack.one
    say(host, "NVRM: Xid (PCI:000f:01:00): 79, before the cut", level=4)
    say(host, "a note that no console gets", level=6)
    seen_now(host, stack.two)
    cut = time.time()
    stack.lab("cycle", host.name)
    found = blackbox(stack, recorded, host, "--before-boot")
    assert cut - 2 <= found["end"]
    assert found["recorder"] == stack.two.name and not found["alive"]
    assert any("before the cut" in words for words in spoken(found))
    assert not any("no console" in words for words in spoken(found))
    assert len(found["figures"]["available_gib"]) > 10
    until(lambda: sends(host), "it sends again after the boot")


def test_a_frozen_host(stack: Stack, recorded: Path) -> None:
    host = stack.two
    say(host, "NVRM: NV_ERR_NO_MEMORY, before the freeze")
    seen_now(host, stack.one)
    began = time.time()
    stack.lab("freeze", host.name)
    frozen = time.time()

    def silent() -> dict[str, Any]:
        found = blackbox(stack, recorded, host)
        return {} if found["alive"] else found

    try:
        found = until(silent, f"{host.name} counts as silent")
        assert began - 2 <= found["end"] <= frozen + 1
        assert any("before the freeze" in words for words in spoken(found))
    finally:
        stack.lab("thaw", host.name)
    seen_now(host, stack.one)
