"""Preflight: an image whose CUDA is newer than what the driver takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight

PLAN = spark()
NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("image_cuda", "takes", "is_named"),
    [
        ("13.4.1", "13.0", True),
        ("14.0", "13.0", True),
        ("13.0.3", "13.0", False),
        ("12.9.1", "13.0", False),
        # A lock that is older than the key, and a driver that does not say.
        ("", "13.0", False),
        ("13.4.1", "", False),
    ],
)
def test_an_image_that_is_newer_than_the_driver_is_named(
    image_cuda: str, takes: str, is_named: bool
) -> None:
    pins = pins_for(PLAN)
    name = next(iter(pins.images))
    pins = replace(pins, images={**pins.images, name: replace(pins.images[name], cuda=image_cuda)})
    facts = healthy(PLAN, NOW)
    unsaid = {key: value for key, value in facts["gpu"].items() if key != "cuda"}
    facts["gpu"] = {**unsaid, **({"cuda": takes} if takes else {})}
    findings = preflight.findings(PLAN, pins, facts, now=NOW)
    assert [item.code for item in findings] == (["image-cuda-newer"] if is_named else [])
    for item in findings:
        assert item.severity == "warning"
        assert f"image {name} was made with CUDA {image_cuda}" in item.message
        assert "cudaErrorUnsupportedPtxVersion" in item.message
