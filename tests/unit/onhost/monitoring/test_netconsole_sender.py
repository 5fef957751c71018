"""The kernel's target for its messages, against a stand-in of configfs with the kernel's rules."""

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lockstep.onhost.core import errors, layout, runner
from lockstep.onhost.monitoring import netconsole_sender

STAND_IN = Path(__file__).parents[4] / "lab/guest/root/usr/lib/lockstep-lab/netconsole"
WHERE = ("10.77.0.1", "10.77.0.2", "6666")
ROUTE = {"dst": "10.77.0.2", "dev": "lo", "prefsrc": "10.77.0.1"}
MAC = "02:00:00:00:00:07"


class Kernel(netconsole_sender.NetconsoleTarget):
    """A target whose attributes are the stand-in's; it exists while its folder does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.target = runpy.run_path(str(STAND_IN))["Target"]()
        self.puts: list[str] = []

    def _read_attribute(self, name: str) -> str:
        value: str = self.target.has[name]
        return value

    def _write_attribute(self, name: str, value: str) -> None:
        self.puts.append(name)
        try:
            self.target.put(name, value)
        except OSError as fault:
            raise errors.Problem(f"the kernel does not take {name}: {fault}") from fault


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    folder = tmp_path / "sys/kernel/config/netconsole"
    folder.mkdir(parents=True)
    return Kernel(folder / "lockstep")


@pytest.fixture
def ip(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """The output of `ip`, by its first word."""
    replies: dict[str, list[dict[str, Any]]] = {"route": [ROUTE], "neigh": [{"lladdr": MAC}]}

    def run(argv: list[str], timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        assert argv[:2] == ["ip", "-json"]
        return subprocess.CompletedProcess(argv, 0, json.dumps(replies[argv[2]]), "")

    monkeypatch.setattr(runner, "run", run)
    return replies


def test_the_kernel_is_told_where_to_send_until_the_end(kernel: Kernel, ip: Any) -> None:
    def attributes_with(reply: dict[str, Any]) -> dict[str, str]:
        ip["neigh"] = [reply]
        return netconsole_sender.wanted_attributes(*WHERE)

    attributes, has = attributes_with({"lladdr": MAC}), kernel.target.has
    # A neighbour that is not known is everybody, and changes nothing later.
    kernel.set_up(attributes_with({"state": ["FAILED"]}))
    assert has["remote_mac"] == "ff:ff:ff:ff:ff:ff"
    assert not kernel.sends_as_wanted(attributes)
    kernel.set_up(attributes)
    assert kernel.sends_as_wanted(attributes)
    assert kernel.sends_as_wanted(attributes_with({"state": ["FAILED"]}))
    assert (has["enabled"], has["extended"], has["remote_mac"]) == ("1", "1", MAC)
    assert (has["dev_name"], has["local_ip"], has["remote_ip"]) == ("lo", *WHERE[:2])
    # One that sends takes a change only after a stop.
    attributes = attributes_with({"lladdr": "02:00:00:00:00:08"})
    assert not kernel.sends_as_wanted(attributes)
    kernel.puts.clear()
    kernel.set_up(attributes)
    assert kernel.puts[0] == "enabled" and kernel.sends_as_wanted(attributes)
    # A refusal names the attribute.
    with pytest.raises(errors.Problem, match="enabled"):
        kernel.set_up({**attributes, "dev_name": "gone0"})
    kernel.remove()
    assert has["enabled"] == "0" and not kernel._folder.exists()


def test_without_the_cable_or_the_module_it_does_not_send(ip: Any, tmp_path: Path) -> None:
    other_way = {**ROUTE, "prefsrc": "192.168.1.7", "gateway": "192.168.1.1"}
    for ways in ([], [other_way]):
        ip["route"] = ways
        with pytest.raises(errors.Problem, match="there is no way from"):
            netconsole_sender.wanted_attributes(*WHERE)
    nowhere = netconsole_sender.NetconsoleTarget(tmp_path / "sys/kernel/config/netconsole/lockstep")
    with pytest.raises(errors.Problem, match=r"has no netconsole.*Remedy: `modprobe netconsole`"):
        nowhere.set_up({})
    nowhere.remove()


def test_it_is_set_up_again_and_told_once(kernel, ip, monkeypatch, capsys):
    monkeypatch.setattr(netconsole_sender, "NetconsoleTarget", lambda _: kernel)
    sleeps = 0

    def sleep(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        if sleeps == 3:
            # The cable went and came.
            kernel.target.has["enabled"] = "0"
        if sleeps == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        netconsole_sender.main(["send", *WHERE], layout.Paths(kernel._folder), sleep)
    assert kernel.target.has["enabled"] == "1"
    message = "lockstep netconsole: the kernel sends to 10.77.0.2, port 6666, by lo"
    assert capsys.readouterr().out.splitlines() == [message]
    assert netconsole_sender.main(["send"]) == 2
    assert "usage: netconsole send FROM TO PORT" in capsys.readouterr().err
