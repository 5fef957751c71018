"""The last seconds of a host that lost its power or froze are on the host that records it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Deployed, Host, Stack, until

from lockstep.monitoring.netconsole import SENDER

TARGET = "/sys/kernel/config/netconsole/lockstep"


@pytest.fixture(scope="module")
def recorded(stack: Stack, first: Deployed) -> Iterator[Path]:
    """Both hosts record each other; the inventory that says so."""
    assert first.code == 0, first.output[-8000:]
    fabric = {
        f"{host.name}__fabric_address": host.root("hostname -I").split()[0] for host in stack.hosts
    }
    inventory = stack.inventory("recorded", monitoring={"enabled": True}, **fabric)
    stack.good_deploy("-y", inventory=inventory)
    for host in stack.hosts:
        until(lambda host=host: sends(host), f"{host.name} sends")
    assert stack.good_deploy("-y", inventory=inventory).changed == set()
    yield inventory
    stack.good_deploy()
    for host in stack.hosts:
        assert host.root(f"test ! -e {TARGET} && echo gone") == "gone"
        assert host.root("systemctl list-unit-files 'lockstep-netconsole*' --no-legend") == ""


def sends(host: Host) -> bool:
    return bool(host.run(f"sudo -n cat {TARGET}/enabled").out.strip() == "1")


def say(host: Host, words: str, level: int = 3) -> None:
    """Have the kernel say something."""
    host.root(f"echo '<{level}>{words}' > /run/kmsg")


def blackbox(stack: Stack, inventory: Path, host: Host, *words: str) -> dict[str, Any]:
    done = stack.lockstep(
        f"blackbox {{}} {host.name} --json {' '.join(words)}", inventory=inventory
    )
    assert done.code == 0, done.text
    found: dict[str, Any] = json.loads(done.out)
    return found


def spoken(found: dict[str, Any]) -> list[str]:
    return [event["words"] for event in found["events"] if event["kind"] == "kernel"]


def test_a_power_cut(stack: Stack, recorded: Path) -> None:
    host = stack.one
    say(host, "NVRM: Xid (PCI:000f:01:00): 79, before the cut", level=4)
    say(host, "a note that no console gets", level=6)
    cut = time.time()
    stack.lab("cycle", host.name)
    found = blackbox(stack, recorded, host, "--before-boot")
    assert 0 <= cut - found["end"] <= 2 or found["end"] > cut
    assert found["recorder"] == stack.two.name and not found["alive"]
    assert any("before the cut" in words for words in spoken(found))
    assert not any("no console" in words for words in spoken(found))
    assert len(found["figures"]["available_gib"]) > 10
    until(lambda: sends(host), "it sends again after the boot")


def test_a_frozen_host(stack: Stack, recorded: Path) -> None:
    host = stack.two
    say(host, "NVRM: NV_ERR_NO_MEMORY, before the freeze")
    frozen = time.time()
    stack.lab("freeze", host.name)
    try:
        until(lambda: not blackbox(stack, recorded, host)["alive"], f"{host.name} counts as silent")
        found = blackbox(stack, recorded, host)
        assert abs(frozen - found["end"]) <= 2
        assert any("before the freeze" in words for words in spoken(found))
    finally:
        stack.lab("thaw", host.name)
    until(lambda: blackbox(stack, recorded, host)["alive"], f"{host.name} is seen again")


def test_a_kernel_without_the_module_is_a_finding(stack: Stack, recorded: Path) -> None:
    host = stack.one
    host.root("systemctl stop netconsole-standin && umount /sys/kernel/config/netconsole")
    host.root(f"systemctl restart {SENDER}")
    until(
        lambda: "has no netconsole" in host.root(f"journalctl -q -u {SENDER} -n 20"), "it is said"
    )
    shown = stack.diff(inventory=recorded).stdout
    assert "netconsole kernel messages to" in shown
    assert stack.good_deploy("-y", inventory=recorded).changed == set()
    host.root("systemctl start netconsole-standin")
    until(lambda: sends(host), "it sends again")


def test_one_alone_says_what_nobody_can_know(stack: Stack, recorded: Path) -> None:
    host = stack.one
    alone = stack.inventory("alone", monitoring={"enabled": False})
    done = stack.lockstep("blackbox", host.name, "--before-boot", inventory=alone)
    assert done.code == 0, done.text
    assert "is recorded by no other Spark" in " ".join(done.out.split())
