"""Real packages for a Spark: needs the package index that this machine's uv asks, nothing else."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import PythonItem
from lockstep.lock.pins import PythonPin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.python import resolve_python
from lockstep.onhost.core import schema
from lockstep.onhost.environment import wheel_store
from lockstep.onhost.fetch import blob_files, peer_client

pytestmark = pytest.mark.slow

INDEX = Sources(torch_index=None, flashinfer_index=None)


def wanted_packages(name: str, *requirements: str) -> PythonItem:
    return PythonItem(name, requirements, "aarch64", "3.12")


def test_a_released_vllm_is_locked_for_the_spark_with_everything_that_it_needs() -> None:
    item = wanted_packages(
        "engine", "torch==2.13.0", "torchvision", "vllm==0.32.0", "mistral_common"
    )
    pin = resolve_python(item, Network(INDEX))
    assert schema.build(PythonPin, asdict(pin), where="the lock", error=InventoryError) == pin
    assert pin.versions["torch"] == "2.13.0" and pin.versions["vllm"] == "0.32.0"
    # CUDA's libraries come along, of the generation that a Spark has.
    assert pin.versions["cuda-toolkit"].startswith("13.")
    assert len(pin.packages) > 150
    for wheel in pin.packages:
        platform = wheel.file.removesuffix(".whl").rpartition("-")[2]
        assert platform == "any" or "aarch64" in platform, wheel.file


def test_a_host_fetches_locked_wheels_from_the_index_of_its_pip(tmp_path: Path) -> None:
    pin = resolve_python(wanted_packages("tools", "uvicorn", "huggingface_hub"), Network(INDEX))
    # pip takes no wheel of another architecture than its own.
    every = [
        wheel_store.Wheel(**vars(package))
        for package in pin.packages
        if package.file.endswith("-any.whl")
    ]
    assert len(every) > 5
    pip = wheel_store.Pip(sys.executable, wheel_store.pip_index_variables(None, []))
    wheel_store.WheelStore(tmp_path, pip, peer_client.Copier(None)).bring_wheels("tools", every)
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == {
        package.file for package in every
    }
    assert all(blob_files.matches(tmp_path / package.sha256, package.sha256) for package in every)
