"""After a power cut no model is hot unless asked for; a boot link that somebody made is removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import booting
import pytest
from stack import Host, Stack, until

from lockstep.fleet.login import NO_CONNECTION
from lockstep.onhost.records import boots


@pytest.fixture(scope="module", autouse=True)
def nothing_hot_afterwards(stack: Stack) -> Iterator[None]:
    """Leave the hosts as the next tests expect them."""
    yield
    for host in stack.hosts:
        host.switch("none")


def test_after_a_power_cut_no_model_is_hot_and_open_webui_is_back(
    deployed: Stack, one: Host
) -> None:
    assert one.switch("qwen").code == 0
    deployed.lab("cycle", one.name)
    until(lambda: webui_answers(one), "spark1: Open WebUI answers")
    assert one.active() == set()
    assert one.root("docker ps --format '{{.Names}}'").split() == ["open-webui"]
    found = one.status()
    assert (found["hot"], found["webui"], found["problems"]) == (None, "active", [])
    assert boot_links(one) == []
    assert deployed.good_deploy().changed == set()


def test_a_power_cut_in_the_middle_of_a_switch_leaves_a_host_that_can_switch(
    deployed: Stack,
) -> None:
    two = deployed.two
    assert two.switch("qwen").code == 0
    watching = two.begin("/data/scripts/llm/switch.sh tiny")
    until(lambda: two.show("vllm.service", "ActiveState") == "activating", "spark2: tiny loads")
    deployed.lab("cycle", two.name)
    found = two.status()
    assert (found["hot"], found["switching"], found["problems"]) == (None, None, [])
    answer = two.switch("mistral")
    assert answer.code == 0, answer.text
    assert two.active() == {"sglang-mistral4.service"}
    # ssh's own code where the connection is lost, and what it had been told.
    until(lambda: watching.poll() is not None, "who watched is told that the connection is gone")
    assert watching.returncode == NO_CONNECTION
    assert watching.stdout and "starting tiny" in watching.stdout.read()


@pytest.mark.parametrize("wants", ["multi-user.target.wants", "graphical.target.requires"])
def test_a_boot_link_of_qwen_is_removed_and_reported(
    deployed: Stack, one: Host, wants: str
) -> None:
    unit = "vllm-qwen36.service"
    link = PurePosixPath("/etc/systemd/system") / wants / unit
    one.root(f"mkdir -p {link.parent} && ln -s ../{unit} {link}")
    assert any(f"{unit} starts at boot" in problem for problem in one.status()["problems"])
    done = deployed.good_deploy()
    assert f"[spark1] {unit} had a boot link ({link}): removed" in " ".join(done.output.split())
    assert done.changed == {"Services | Keep model units off at boot"}
    assert boot_links(one) == []
    assert one.status()["problems"] == []


@pytest.fixture
def asked_for(deployed: Stack) -> Iterator[Path]:
    """The first host makes hot again what was, the second mistral; as they were afterwards."""
    inventory = deployed.inventory("boot", spark1__boot="last", spark2__boot="mistral")
    for host in deployed.hosts:
        assert host.switch("none").code == 0
    deployed.good_deploy(inventory=inventory)
    for host in deployed.hosts:
        # The power cuts of other tests count like these.
        host.root(f"rm -f {booting.RECORD}")
    # The deploy itself begins nothing.
    assert [host.active() for host in deployed.hosts] == [set(), set()]
    assert deployed.good_deploy(inventory=inventory).changed == set()
    yield inventory
    for host in deployed.hosts:
        host.root("rm -f /etc/tmpfiles.d/standin.conf /run/unified-memory/standin-*.json")
        host.switch("none")
    deployed.good_deploy()
    assert {host.show(boots.UNIT, "LoadState") for host in deployed.hosts} == {"not-found"}


def test_what_the_inventory_asks_for_is_hot_after_a_power_cut(
    deployed: Stack, asked_for: Path
) -> None:
    one, two = deployed.hosts
    assert one.switch("mistral").code == 0
    for host in (one, two):
        deployed.lab("cycle", host.name)
    for host in (one, two):
        until(lambda host=host: host.status()["hot"] == "mistral", f"{host.name}: mistral is hot")
    # A recipe that forbids it is obeyed.
    assert one.switch("qwen").code == 0
    deployed.lab("cycle", one.name)
    said = until(lambda: one.status()["boot"], "spark1 says why nothing is hot")
    assert said.startswith("qwen: recipe qwen3.6-35b-a3b-prismaquant-dflash-k3 forbids it")
    assert one.active() == set()
    # An engine that freezes the host is tried twice, and then nothing is before somebody asks.
    assert two.switch("none").code == 0
    power = booting.Booting(deployed, two, "mistral")
    power.knobs(freezes_host=True)
    power.take_power()
    tries = -1
    while (tries := tries + 1) < 4 and power.off():
        power.give_power()
        until(lambda: power.off() or power.settled(), "spark2 is frozen or at rest")
    assert tries == 3 and not power.off()
    assert "stays down: two boots were cut off within" in two.status()["boot"]
    found = " ".join(deployed.diff(inventory=asked_for).stdout.split())
    assert f"failed unit {boots.UNIT}" in found and "stays down" in found
    power.knobs()
    assert two.switch("mistral").code == 0
    assert two.status()["boot"] is None


def webui_answers(host: Host) -> bool:
    """Whether Open WebUI's own health check is green."""
    return host.look("curl -fsS --max-time 5 http://127.0.0.1:8080/health").code == 0


def boot_links(host: Host) -> list[str]:
    """Links that would start a model unit at boot."""
    return host.root(
        "find /etc/systemd /run/systemd/system -type l"
        " \\( -name 'vllm*.service' -o -name 'sglang*.service' \\)"
    ).split()
