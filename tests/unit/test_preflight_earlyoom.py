"""earlyoom from 1.8 on counts its percentages otherwise: that is said before a deploy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.pins import AptPin, DebianPin


def codes(version: str, **data: object) -> list[str]:
    plan = spark(**data)
    pins = pins_for(plan)
    architecture = plan.settings.expected.architecture
    kept = [item for item in pins.apt[architecture].packages if item.name != "earlyoom"]
    packages = (*kept, DebianPin("earlyoom", version))
    pins = replace(pins, apt={architecture: AptPin(packages)})
    found = preflight.findings(plan, pins, healthy(plan, 1000.0), now=1000.0)
    return [item.code for item in found]


@pytest.mark.parametrize("version", ["1.8-1", "1.8.2-1", "1.9.0-1ubuntu1"])
def test_one_that_counts_otherwise_is_a_warning(version: str) -> None:
    assert codes(version) == ["earlyoom-late"]


def test_that_of_dgx_os_7_is_none() -> None:
    assert codes("1.7-2") == []


def test_one_that_nobody_asks_for_is_none() -> None:
    assert codes("1.8.2-1", packages=("git", "jq")) == []
