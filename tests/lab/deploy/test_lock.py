"""The lab's lock: made by the deploy, moved by the command, and put back with no server there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Stack, until

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
def alone(deployed: Stack) -> Path:
    """An inventory of spark1 only, deployed: each host with another engine builds for a minute."""
    found = deployed.inventory("alone", spark2=None)
    deployed.good_deploy(inventory=found)
    return found


def update(stack: Stack, name: str) -> list[tuple[str, str]]:
    """(kind, name) of what `lockstep update` says has moved."""
    done = stack.lockstep("update", "--json", name)
    assert done.code == 0, done.text
    found: list[dict[str, Any]] = json.loads(done.out)["changes"]
    return [(change["kind"], change["name"]) for change in found]


def current(stack: Stack) -> str:
    """The engine generation in use."""
    return stack.one.root(f"readlink {ENGINES}/current").strip()


@pytest.fixture
def newer_flashinfer(deployed: Stack, tmp_path: Path) -> Iterator[None]:
    """FlashInfer's next version on the lab's indexes; hosts and lock as before afterwards."""
    lab = open_lab(deployed.name)
    overlay, base = lab.state / "services/web", python_index(lab.cache, lambda message: None)
    before, generation = deployed.lock.read_bytes(), current(deployed)
    for index, wheel in TRIPLE:
        publish(overlay, base, index, write_wheel(wheel, tmp_path))
    yield
    deployed.lab("services", "start")
    for index, wheel in TRIPLE:
        for file in (overlay / index / wheel.name).iterdir():
            file.unlink()
    deployed.lock.write_bytes(before)
    deployed.good_deploy("-y", "--limit", deployed.one.name)
    kept = f"! -name {generation} ! -name uv-cache ! -name store"
    deployed.one.root(f"find {ENGINES} -mindepth 1 -maxdepth 1 -type d {kept} -exec rm -rf {{}} +")


def test_one_thing_moves_is_deployed_over_a_killed_build_and_goes_back_with_every_server_off(
    deployed: Stack, newer_flashinfer: None, alone: Path
) -> None:
    one = deployed.one
    old, generation = lockfile.load(deployed.lock), current(deployed)
    moved = [("engine", wheel.name) for _, wheel in TRIPLE]
    # What other inventories had recorded in the lab's lock goes; nothing else moves.
    assert [each for each in update(deployed, "flashinfer") if each[0] == "engine"] == sorted(moved)
    new = lockfile.load(deployed.lock)
    came = [change.new for change in changes(old, new) if change.new]
    assert came == [NEWER, f"{NEWER}+cu130", NEWER]

    # An engine that no check has passed is not in use.
    run = deployed.start(inventory=alone)
    until(lambda: one.show(BUILD, "SubState") == "running", "spark1 builds vLLM")
    one.root(f"systemctl kill -s KILL {BUILD}")
    assert run.end().code == 1
    assert current(deployed) == generation
    deployed.good_deploy(inventory=alone)
    assert current(deployed) != generation

    deployed.lab("services", "stop")
    done = deployed.lockstep("rollback", "--yes", inventory=alone)
    assert done.code == 0, done.text[-8000:]
    assert "Each host is what its record of that generation says." in done.out
    assert current(deployed) == generation
    assert lockfile.load(deployed.lock) == old
    assert one.switch("qwen", "--dry").code == 0
    # Neither the build that was killed nor the one beside it broke the engine of before.
    python = f"{ENGINES}/current/venv/bin/python"
    one.root(f"cd / && sudo -n -u lockstep {python} -c 'import torch, vllm'")
