"""The lab's lock: made by the deploy, moved by the command, and put back with no server there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Stack

from lab.core.state import open_lab
from lab.packages.python_packages import python_index
from lab.packages.simple_index import publish
from lab.packages.wheels import StandInWheel, write_wheel
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import changes

ENGINES = "/opt/lockstep/engines"
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


def lock(stack: Stack, *options: str, command: str = "lock") -> tuple[int, list[tuple[str, str]]]:
    """Exit code of `lockstep lock` or `update`, and (kind, name) of what it says has moved."""
    done = stack.lockstep(command, "--json", *options)
    assert done.code in (0, 1), done.err
    found: list[dict[str, Any]] = json.loads(done.out)["changes"]
    return done.code, [(change["kind"], change["name"]) for change in found]


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
    deployed.good_deploy()
    kept = f"! -name {generation} ! -name uv-cache ! -name store"
    deployed.one.root(f"find {ENGINES} -mindepth 1 -maxdepth 1 -type d {kept} -exec rm -rf {{}} +")


def test_one_thing_moves_is_deployed_and_goes_back_with_every_server_off(
    deployed: Stack, newer_flashinfer: None, alone: Path
) -> None:
    old, generation = lockfile.load(deployed.lock), current(deployed)
    moved = [("engine", wheel.name) for _, wheel in TRIPLE]
    code, found = lock(deployed, "--check")
    assert (code, set(moved) - set(found)) == (1, set())
    assert lockfile.load(deployed.lock) == old
    # What other inventories had recorded in the lab's lock goes; nothing else moves.
    code, found = lock(deployed, "flashinfer", command="update")
    assert (code, [each for each in found if each[0] == "engine"]) == (0, sorted(moved))
    new = lockfile.load(deployed.lock)
    came = [change.new for change in changes(old, new) if change.new]
    assert came == [NEWER, f"{NEWER}+cu130", NEWER]
    assert deployed.good_deploy(inventory=alone).code == 0
    assert current(deployed) != generation

    # What the lock alone does not bring back is named, and nothing is touched for it.
    image = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:2026110101"
    other = deployed.inventory("other", alone, targets={"qwen": {"image": image}, "tiny": None})
    here = current(deployed)
    for options in ((), ("--dry",)):
        refused = deployed.lockstep("rollback", *options, inventory=other)
        assert refused.code == 2, refused.text
        assert f"targets.qwen.image   none → {image}   (lab.py)" in refused.err
        assert "targets.tiny   in the inventory → none   (lab.py)" in refused.err
        assert refused.err.endswith("Nothing was changed.\n")
    assert (current(deployed), lockfile.load(deployed.lock)) == (here, new)

    deployed.lab("services", "stop")
    done = deployed.lockstep("rollback", inventory=alone)
    assert done.code == 0, done.text[-8000:]
    assert "Each host is what its record of that generation says." in done.out
    assert current(deployed) == generation
    assert lockfile.load(deployed.lock) == old
    assert deployed.one.switch("qwen", "--dry").code == 0
