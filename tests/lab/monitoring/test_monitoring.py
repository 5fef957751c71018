"""Monitoring with the real Prometheus, Alertmanager and node_exporter: on, again, and gone.

The last seconds of a host that lost its power or froze are on the host that records it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import metric_names
import pytest
from stack import Host, Stack, until

from lab.host import connection
from lab.host.network import NAMESPACES
from lockstep.monitoring import stack as monitoring
from lockstep.onhost.monitoring.metric_table import METRICS

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
OWN_SERIES = '{__name__=~"lockstep_.*|node_.*",job="node"}'
RECORD = "/var/lib/lockstep-deploy/packages.json"
FILES = (
    "/etc/lockstep/prometheus* /etc/lockstep/alertmanager* /etc/lockstep/secrets/alerts-*"
    f" {monitoring.TEXTFILES}"
)
TARGET = "/sys/kernel/config/netconsole/lockstep"
DATA = "/var/lib/lockstep-prometheus /var/lib/private/lockstep-* /var/lib/lockstep-alertmanager"
TOKEN = "tk-" + "f3" * 16
#: A webhook on the lab's side of its network, which prints with which words somebody logs in.
RECEIVER = """
import http.server

class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        print(self.headers["Authorization"], flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("10.77.0.1", 8499), Taker)
print("it listens", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def recorded_inventory(stack, first, tmp_path_factory):
    """Both hosts with monitoring, in a ring of two; removed from the inventory afterwards.

    The second one's Prometheus is at its fabric address, and alerts a receiver that wants a token.
    Gives the inventory that has it.
    """
    accounts = {host.name: host.root("getent passwd | cut -d: -f1 | sort") for host in stack.hosts}
    earlier_packages = {
        host.name: host.root("dpkg-query -W -f '${Package}\\n'") for host in stack.hosts
    }
    secret = tmp_path_factory.mktemp("secret") / "token"
    secret.write_text(TOKEN)
    receiver = {"webhook": "http://10.77.0.1:8499/", "token": {"command": ("cat", str(secret))}}
    more = {"spark2__monitoring": {"enabled": True, "bind": "fabric", "tell": (receiver,)}}
    inventory = stack.inventory(
        "monitored", monitoring={"enabled": True}, **stack.fabric_addresses(), **more
    )
    stack.good_deploy("-y", inventory=inventory)
    # That with a receiver: the other one has no more than this has.
    again = stack.good_deploy("-y", "--limit", "spark2", inventory=inventory)
    assert again.changed_operations == set()
    for host in stack.hosts:
        until(lambda host=host: sends(host), f"{host.name} sends")
    yield inventory
    result = stack.good_deploy()
    assert "Monitoring | Purge packages that monitoring brought" in result.changed_operations
    for host in stack.hosts:
        assert host.root(f"ls -d {FILES} {DATA} 2>/dev/null || true") == ""
        assert host.root("dpkg-query -W -f '${Package}\\n'") == earlier_packages[host.name]
        assert host.root("getent passwd | cut -d: -f1 | sort") == accounts[host.name]
        packages = json.loads(host.root(f"cat {RECORD}"))["packages"]
        assert not [name for name in packages if name.startswith("prometheus")]
        assert listeners(host) == {}
        assert host.root(f"test ! -e {TARGET} && echo gone") == "gone\n"
        assert host.root("systemctl list-unit-files -q 'lockstep-netconsole*' || true") == ""
        for unit in (*monitoring.PACKAGED_UNITS.values(), monitoring.PROMETHEUS_UNIT):
            assert host.show(unit, "LoadState") == "not-found"
    drift = stack.diff("--limit", "spark1")
    assert not any(word in drift.out for word in ("prometheus", "masked", "node-exporter"))


def listeners(host: Host) -> dict[int, set[str]]:
    """Port of monitoring, or of a gossip that is off → its listening addresses."""
    addresses: dict[int, set[str]] = {}
    for line in host.root("ss -Hltn").splitlines():
        listen_address, _, port = line.split()[3].rpartition(":")
        if int(port) in (NODE, PROMETHEUS, ALERTMANAGER, 9094):
            addresses.setdefault(int(port), set()).add(listen_address)
    return addresses


def prometheus(host: Host) -> str:
    """The address of a host's Prometheus."""
    return "127.0.0.1" if host.name == "spark1" else host.address


def series(host: Host, query: str) -> list[dict[str, Any]]:
    url = f"http://{prometheus(host)}:{PROMETHEUS}/api/v1/query?query={quote(query)}"
    return host.get(url)["data"]["result"]


def labels(host: Host, query: str, name: str) -> set[str]:
    """The values of a label of the series that a host's Prometheus has."""
    return {entry["metric"][name] for entry in series(host, query)}


def test_each_host_scrapes_itself_and_the_writer_s_metrics_are_there(stack, recorded_inventory):
    expected_names = ALWAYS | metric_names.NODE - NOT_HERE
    for host in stack.hosts:
        until(
            lambda host=host: (
                labels(host, "up == 1", "job") >= {"node", "gateway"}
                and labels(host, OWN_SERIES, "__name__") >= expected_names
            ),
            f"{host.name} scrapes both, and has every metric",
        )
        (memory,) = series(host, 'lockstep_memory_available_bytes{job="node"}')
        assert memory["metric"]["host"] == host.name and float(memory["value"][1]) > 2**30
        assert series(host, "node_textfile_scrape_error != 0") == []


def test_nothing_listens_but_what_the_documents_say_and_that_is_open_to_its_recorder(
    stack, recorded_inventory
):
    for host in stack.hosts:
        assert listeners(host) == {
            NODE: {"127.0.0.1", host.address},
            PROMETHEUS: {prometheus(host)},
            ALERTMANAGER: {"127.0.0.1"},
        }
    first_host, two = stack.hosts
    page = two.root(f"curl -fsS --max-time 10 http://{first_host.address}:{NODE}/metrics")
    assert "lockstep_memory_available_bytes" in page
    url = f"http://{two.address}:{PROMETHEUS}/-/healthy"
    assert "Healthy" in first_host.root(f"curl -fsS --max-time 10 {url}")


def test_a_receiver_gets_its_token_and_only_root_s_file_has_it(stack, recorded_inventory):
    host = stack.two
    network = NAMESPACES / connection.load(stack.name).namespace
    argv = ["nsenter", f"--net={network}", sys.executable, "-c", RECEIVER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout.readline() == "it listens\n"
        result = stack.lockstep("alert test", host.name, inventory=recorded_inventory)
        receiver.kill()
        logins = receiver.stdout.read().splitlines()
    assert result.code == 0, result.text
    assert set(logins) == {f"Bearer {TOKEN}"}
    file = host.root("ls /etc/lockstep/secrets/alerts-*").strip()
    assert host.root(f"stat -c '%a %U' {file}").split() == ["600", "root"]
    folders = "/etc /run /tmp /var/tmp /var/log /root /home /usr/local"
    files = f"{folders} ! -path {file} ! -path '/run/credentials/*'"
    assert host.places_with(file, files) == []


def test_the_packages_own_configuration_never_ran(stack, recorded_inventory):
    """Every process of these names in the journal was one of a unit of ours."""
    for host in stack.hosts:
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


def sends(host: Host) -> bool:
    return bool(host.look(f"cat {TARGET}/enabled").out.strip() == "1")


def say(host: Host, words: str, level: int = 3) -> None:
    """Have the kernel log a message."""
    host.root(f"echo '<{level}>{words}' > /run/kmsg")


def blackbox(stack: Stack, inventory: Path, host: Host, *words: str) -> dict[str, Any]:
    result = stack.lockstep("blackbox", host.name, "--json", *words, inventory=inventory)
    assert result.code == 0, result.text
    return json.loads(result.out)


def seen_now(host: Host, by: Host) -> None:
    """Wait until a host has a sample of another one that is younger than a second."""
    sample = f'node_boot_time_seconds{{job="peer", host="{host.name}"}}'
    fresh = f"time() - timestamp({sample}) < 1"
    until(lambda: series(by, fresh), f"{by.name} records {host.name} each second")


def kernel_messages(record: dict[str, Any]) -> list[str]:
    return [event["words"] for event in record["events"] if event["kind"] == "kernel"]


def test_a_power_cut(stack, recorded_inventory):
    host = stack.spark1
    say(host, "NVRM: Xid (PCI:000f:01:00): 79, before the cut", level=4)
    say(host, "a note that no console gets", level=6)
    seen_now(host, stack.two)
    cut = time.time()
    stack.lab("cycle", host.name)
    record = blackbox(stack, recorded_inventory, host, "--before-boot")
    assert cut - 2 <= record["end"]
    assert record["recorder"] == stack.two.name and not record["alive"]
    assert any("before the cut" in words for words in kernel_messages(record))
    assert not any("no console" in words for words in kernel_messages(record))
    assert len(record["figures"]["available_gib"]) > 10
    until(lambda: sends(host), "it sends again after the boot")


def test_a_frozen_host(stack, recorded_inventory):
    host = stack.two
    say(host, "NVRM: NV_ERR_NO_MEMORY, before the freeze")
    seen_now(host, stack.spark1)
    began = time.time()
    stack.lab("freeze", host.name)
    frozen_at = time.time()

    def silent() -> dict[str, Any]:
        record = blackbox(stack, recorded_inventory, host)
        return {} if record["alive"] else record

    try:
        silent_record = until(silent, f"{host.name} counts as silent")
        assert began - 2 <= silent_record["end"] <= frozen_at + 1
        assert any("before the freeze" in words for words in kernel_messages(silent_record))
    finally:
        stack.lab("thaw", host.name)
    seen_now(host, stack.spark1)
