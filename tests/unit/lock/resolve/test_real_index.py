"""Real packages for a Spark: needs the package index that this machine's uv asks, nothing else."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import PythonItem
from lockstep.lock.pins import PythonPin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.python import resolve_python
from lockstep.onhost.core import schema

pytestmark = pytest.mark.slow


def test_a_released_vllm_is_locked_for_the_spark_with_everything_that_it_needs() -> None:
    requirements = ("torch==2.13.0", "torchvision", "vllm==0.32.0", "mistral_common")
    index = Sources(torch_index=None, flashinfer_index=None)
    pin = resolve_python(PythonItem("engine", requirements, "aarch64", "3.12"), Network(index))
    assert schema.build(PythonPin, asdict(pin), where="the lock", error=InventoryError) == pin
    assert pin.versions["torch"] == "2.13.0" and pin.versions["vllm"] == "0.32.0"
    # CUDA's libraries come along, of the generation that a Spark has.
    assert pin.versions["cuda-toolkit"].startswith("13.")
    assert len(pin.packages) > 150
    for wheel in pin.packages:
        platform = wheel.file.removesuffix(".whl").rpartition("-")[2]
        assert platform == "any" or "aarch64" in platform, wheel.file
