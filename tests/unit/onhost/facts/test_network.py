"""Whose a listening socket is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lockstep.onhost.facts import network
from lockstep.onhost.system.listeners import Listener

SOCKETS = """\
127.0.0.1:8090                      lockstep-gateway.socket         lockstep-gateway.service
[::]:22                             ssh.socket                      ssh.service
/run/lockstep-gateway-switch.sock   lockstep-gateway-switch.socket  -
kobject-uevent 1                    systemd-udevd-kernel.socket     systemd-udevd.service
"""


def test_a_port_that_systemd_holds_for_a_service_that_does_not_run_is_its_socket_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        Listener("tcp", "127.0.0.1", 8090, 0, (1,)),
        Listener("tcp", "::", 22, 0, (1,)),
        # The youngest process that has it counts: the service, while it runs.
        Listener("tcp", "127.0.0.1", 30000, 0, (4711, 1)),
    ]
    files = {
        "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/1/comm": "systemd",
        "/proc/4711/cgroup": "0::/system.slice/lockstep-gateway.service",
        "/proc/4711/comm": "python",
    }
    monkeypatch.setattr(network.kernel_listeners, "listeners", lambda: found)
    monkeypatch.setattr(network, "run", lambda *argv: SimpleNamespace(stdout=SOCKETS))
    monkeypatch.setattr(network, "text", files.get)
    monkeypatch.setattr(network, "marked", lambda path: path.name.startswith("lockstep-"))
    said = network.listeners([8090, 22, 30000])
    assert {port: (each["process"], each["ours"]) for port, each in said.items()} == {
        "8090": ("systemd", True),
        "22": ("systemd", False),
        "30000": ("python", True),
    }
