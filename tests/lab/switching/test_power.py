"""After a power cut no model is hot unless asked for; a cap of the GPU's clock is there again.

A boot link that somebody made: drift/test_drift.
"""

import booting
import pytest
from faults import KNOBS
from stack import SWITCH, Host, until

from lockstep.fleet.login import NO_CONNECTION
from lockstep.onhost.records import models_by_boot

CAP = "/dev/nvidia-standin-cap"
ONE = ("-y", "--limit", "spark1")


@pytest.fixture(scope="module", autouse=True)
def nothing_hot_afterwards(stack):
    """Leave the host as the next tests expect it."""
    yield
    stack.spark1.switch("none")


def test_after_a_power_cut_in_the_middle_of_a_switch_no_model_is_hot_and_open_webui_is_back(
    deployed_stack, lab_host
):
    assert lab_host.switch("qwen").code == 0
    lab_host.root(f"echo '{{\"load_seconds\": 60}}' > {KNOBS}/standin-sglang.json")
    watching = lab_host.begin(f"{SWITCH} mistral")
    # Docker that is cut off while it makes a volume leaves it unlabelled: a deploy refuses it.
    container = "docker ps -q --filter name=sglang-mistral4"
    until(lambda: lab_host.root(container), "spark1: mistral loads")
    deployed_stack.lab("cycle", lab_host.name)
    health = "curl -fsS --max-time 5 http://127.0.0.1:8080/health"
    until(lambda: lab_host.look(health).code == 0, "spark1: Open WebUI answers")
    assert lab_host.active() == set()
    assert lab_host.root("docker ps --format '{{.Names}}'").split() == ["open-webui"]
    status = lab_host.status()
    assert (status["hot"], status["switching"], status["webui"]) == (None, None, "active")
    assert status["problems"] == []
    assert deployed_stack.good_deploy(*ONE).changed_operations == set()
    # ssh's own code where the connection is lost, and what it had been told.
    until(lambda: watching.poll() is not None, "who watched is told that the connection is gone")
    assert watching.returncode == NO_CONNECTION
    assert watching.stdout and "starting mistral" in watching.stdout.read()


@pytest.fixture(scope="module")
def asked_for(stack, first):
    """A deploy after which spark1 makes mistral hot at boot, and its GPU's clock has a cap."""
    host = stack.spark1
    assert host.switch("none").code == 0
    inventory = stack.inventory("boot", spark1__boot="mistral", gpu={"max_clock_mhz": 2100})
    stack.good_deploy(*ONE, inventory=inventory)
    yield inventory
    host.root(f"rm -f /etc/tmpfiles.d/standin.conf {KNOBS}/standin-*.json")
    host.switch("none")
    stack.good_deploy(*ONE)
    for unit in (models_by_boot.UNIT, "lockstep-gpu-cap.service"):
        assert host.show(unit, "LoadState") == "not-found"
    assert cap(host) == ""


def test_what_the_inventory_asks_for_is_hot_after_one_power_cut_and_stays_down_after_two(
    deployed_stack, lab_host, asked_for
):
    # The deploy itself begins nothing.
    assert lab_host.active() == set()
    # The power cuts of other tests count like these; their knobs went with the power.
    lab_host.root(f"rm -f {booting.RECORD}")
    assert lab_host.switch("mistral").code == 0
    deployed_stack.lab("cycle", lab_host.name)
    until(lambda: lab_host.status()["hot"] == "mistral", "spark1: mistral is hot")
    until(lambda: cap(lab_host) == "2100", "spark1: the cap is back after a boot")
    # The second under a model: its engine freezes the host.
    power = booting.Booting(deployed_stack, lab_host)
    assert lab_host.switch("none").code == 0
    power.knobs(freezes_host=True)
    lab_host.begin(f"{SWITCH} mistral")
    until(power.off, "spark1 is frozen")
    power.give_power()
    until(lambda: power.off() or power.is_settled(), "spark1 is frozen or at rest")
    assert not power.off()
    assert "stays down: two boots were cut off within" in lab_host.status()["boot"]
    drift = " ".join(deployed_stack.diff(*ONE[1:], inventory=asked_for).out.split())
    assert f"failed unit {models_by_boot.UNIT}" in drift and "stays down" in drift
    # Until somebody asks.
    power.knobs()
    assert lab_host.switch("mistral").code == 0
    assert lab_host.status()["boot"] is None


def cap(host: Host) -> str:
    """The cap of its GPU's clock, MHz, or "" without one."""
    return host.root(f"cat {CAP} 2>/dev/null || true").strip()
