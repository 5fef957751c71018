"""The lab's lock: made by the deploy, moved by the command, and restored without a server."""

import json

import pytest
from earlier_state import EarlierState
from stack import Host, Stack, until

from lab.core.state import open_lab
from lab.packages.python_packages import python_index
from lab.packages.simple_index import publish
from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes

ENGINES = "/opt/lockstep/engines"
BUILD = "lockstep-job-engine-vllm.service"
# Newer than what the lab serves; the three must agree.
NEWER = "0.6.14"
TRIPLE = (
    ("simple", StandInWheel("flashinfer-python", NEWER)),
    ("simple", StandInWheel("flashinfer-cubin", NEWER)),
    ("flashinfer", StandInWheel("flashinfer-jit-cache", f"{NEWER}+cu130")),
)


@pytest.fixture
def alone(deployed_stack):
    """An inventory of spark1 only, deployed: each host with another engine builds for a minute."""
    target_path = deployed_stack.inventory("alone", spark2=None)
    deployed_stack.good_deploy(inventory=target_path)
    return target_path


def length(host: Host) -> str:
    """The --max-model-len of the running Qwen."""
    argv: list[str] = host.get("http://127.0.0.1:30001/standin/argv")["argv"]
    return argv[argv.index("--max-model-len") + 1]


def current(stack: Stack) -> str:
    """The engine's build in use."""
    return stack.spark1.root(f"readlink {ENGINES}/current").strip()


@pytest.fixture
def newer_flashinfer(deployed_stack, tmp_path):
    """FlashInfer's next version on the lab's indexes; hosts and lock as before afterwards."""
    lab = open_lab(deployed_stack.name)
    overlay, base = lab.state / "services/web", python_index(lab.cache, lambda message: None)
    earlier_lock, build = deployed_stack.lock.read_bytes(), current(deployed_stack)
    for index, wheel in TRIPLE:
        publish(overlay, base, index, write_wheel(wheel, tmp_path))
    yield
    deployed_stack.lab("services", "start")
    for index, wheel in TRIPLE:
        for file in (overlay / index / wheel.name).iterdir():
            file.unlink()
    deployed_stack.lock.write_bytes(earlier_lock)
    deployed_stack.good_deploy("-y", "--limit", deployed_stack.spark1.name)
    kept_folders = f"! -name {build} ! -name uv-cache ! -name store"
    deployed_stack.spark1.root(
        f"find {ENGINES} -mindepth 1 -maxdepth 1 -type d {kept_folders} -exec rm -rf {{}} +"
    )


def test_one_thing_moves_is_deployed_over_a_killed_build_and_goes_back_with_every_server_off(
    deployed_stack, newer_flashinfer, alone
):
    host = deployed_stack.spark1
    old, build = lockfile.load(deployed_stack.lock), current(deployed_stack)
    assert host.switch("qwen").code == 0
    earlier_state = EarlierState.of(host)
    # An owner changes more than the lock: a model, and a stage that no record has.
    changed_inventory = deployed_stack.inventory(
        "changed",
        alone,
        models={"qwen": {"overrides": {"max_model_len": 131072}}},
        gateway={"keepalive_s": 14},
    )
    update = deployed_stack.lockstep("update", "--json", "flashinfer")
    assert update.code == 0, update.text
    moved_items = json.loads(update.out)["changes"]
    # What other inventories had recorded in the lab's lock goes; nothing else moves.
    moved_wheels = [change["name"] for change in moved_items if change["kind"] == "engine"]
    assert moved_wheels == sorted(wheel.name for _, wheel in TRIPLE)
    new = lockfile.load(deployed_stack.lock)
    came = [change.new for change in changes(old, new) if change.new]
    assert came == [NEWER, f"{NEWER}+cu130", NEWER]

    # An engine that no check has passed is not in use.
    run = deployed_stack.start(inventory=changed_inventory)
    until(lambda: host.show(BUILD, "SubState") == "running", "spark1 builds vLLM")
    host.root(f"systemctl kill -s KILL {BUILD}")
    assert run.end().code == 1
    assert current(deployed_stack) == build
    deployed_stack.good_deploy(inventory=changed_inventory)
    assert current(deployed_stack) != build and length(host) == "131072"

    deployed_stack.lab("services", "stop")
    result = deployed_stack.lockstep("rollback", "--yes", inventory=changed_inventory)
    assert result.code == 0, result.text[-8000:]
    assert (
        "spark1: models.qwen.overrides" in result.out and "qwen is hot: it restarts" in result.out
    )
    assert "Each host is what its record of that generation says." in result.out
    assert earlier_state.differences() == []
    assert current(deployed_stack) == build and length(host) == "262144"
    assert lockfile.load(deployed_stack.lock) == old
    assert host.switch("none").code == 0
    # Neither the build that was killed nor the one beside it broke the engine of before.
    python = f"{ENGINES}/current/venv/bin/python"
    host.root(f"cd / && sudo -n -u lockstep {python} -c 'import torch, vllm'")
