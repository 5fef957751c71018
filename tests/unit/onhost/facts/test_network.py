"""The owner of a listening socket."""

import json
import subprocess

from a_probe import program

from lockstep.onhost.core import runner
from lockstep.onhost.facts import network
from lockstep.onhost.system.listeners import SocketOwner

SOCKETS = """\
127.0.0.1:8090                      lockstep-gateway.socket         lockstep-gateway.service
[::]:22                             ssh.socket                      ssh.service
/run/lockstep-gateway-switch.sock   lockstep-gateway-switch.socket  -
kobject-uevent 1                    systemd-udevd-kernel.socket     systemd-udevd.service
"""


def test_a_port_that_systemd_holds_for_a_service_that_does_not_run_is_its_socket_s(monkeypatch):
    sockets = [
        SocketOwner("tcp", "127.0.0.1", 8090, 0, (1,)),
        SocketOwner("tcp", "::", 22, 0, (1,)),
        # The youngest process that has it counts: the service, while it runs.
        SocketOwner("tcp", "127.0.0.1", 30000, 0, (4711, 1)),
        SocketOwner("tcp", "127.0.0.1", 53, 0, (4711,)),
    ]
    files = {
        "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/1/comm": "systemd",
        "/proc/4711/cgroup": "0::/system.slice/lockstep-gateway.service",
        "/proc/4711/comm": "python",
    }
    monkeypatch.setattr(network.kernel_listeners, "listeners", lambda: sockets)
    answer = subprocess.CompletedProcess([], 0, SOCKETS, "")
    monkeypatch.setattr(runner, "run", lambda *_, **__: answer)
    monkeypatch.setattr(network, "text", files.get)
    monkeypatch.setattr(network, "is_marked", lambda path: path.name.startswith("lockstep-"))
    answers = network.listeners([8090, 22, 30000])
    owners = {port: (listener["process"], listener["ours"]) for port, listener in answers.items()}
    expected_owners = {"8090": ("systemd", True), "22": ("systemd", False)}
    assert owners == {**expected_owners, "30000": ("python", True)}


def test_the_link_s_addresses_and_mtu_are_told_where_its_cable_is_plugged_in(tmp_path, monkeypatch):
    addresses = [{"local": "10.77.0.11", "prefixlen": 24}, {"local": "fe80::1", "prefixlen": 64}]
    up = {"mtu": 9000, "flags": ["UP", "LOWER_UP"]}
    links = [
        {"ifname": "enp1s0f0np0", **up, "addr_info": addresses},
        {"ifname": "enP2p1s0f0np0", **up, "addr_info": []},
        {"ifname": "enP7s7", "mtu": 1500, "flags": ["UP", "NO-CARRIER"], "addr_info": addresses},
    ]
    (tmp_path / "links").write_text(json.dumps(links))
    program(tmp_path, "ip", f'test "$*" = "-json address show" && cat {tmp_path}/links')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    link_facts = [fact[1:] for fact in network.fabric({}) if fact[0] == "fast link"]
    assert link_facts == [
        ("enp1s0f0np0 MTU", 9000),
        ("enp1s0f0np0 addresses", "10.77.0.11/24 fe80::1/64"),
        ("enP2p1s0f0np0 MTU", 9000),
        ("enP2p1s0f0np0 addresses", "none"),
    ]
    names = [item for kind, item, _ in network.fabric({}) if kind == "interface"]
    assert names == [link["ifname"] for link in links]
