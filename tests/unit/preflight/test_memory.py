"""Preflight: memory that is short is told before the download, with the value that would do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from a_spark import GIB, healthy, pins_for, spark

from group_data import all as group_data
from lockstep import preflight
from lockstep.core.findings import Finding
from lockstep.inventory.host import HostPlan, models_of

PLAN = spark()
PINS = pins_for(PLAN)
NOW = 1_795_000_000.0


def found(available: float, plan: HostPlan = PLAN, **facts: Any) -> list[Finding]:
    memory = {"MemTotal": int(121.69 * GIB), "MemAvailable": int(available * GIB)}
    every = preflight.findings(plan, PINS, {**healthy(plan, NOW), "memory": memory, **facts})
    return [item for item in every if item.code == "memory-available"]


def words(findings: list[Finding]) -> list[str]:
    return [item.message.split(" needs ")[0] for item in findings]


@pytest.mark.parametrize("available", [115.8, 110, 102, 101.3])
def test_the_default_targets_start_on_every_kit_that_was_reported(available: float) -> None:
    assert found(available) == []


def test_a_host_with_90_gib_hears_the_number_and_what_to_set_before_the_download() -> None:
    short = found(90)
    assert words(short) == ["mistral", "mistral-fallback", "mistral-vllm"]
    mistral, _, vllm = short
    assert (mistral.severity, mistral.subject) == ("error", "spark1")
    assert mistral.message == (
        "mistral needs 95.9 GiB available to start, and 90.0 GiB are: 0.72 of what SGLang finds "
        "must hold 66.3 GiB of weights and the KV cache of 32768 tokens"
    )
    assert mistral.remedy == (
        'Set `targets.mistral.overrides` to {"gpu_memory_utilization": 0.77} (docs/fit.md), or '
        "free 5.9 GiB (a desktop in use takes about 10)."
    )
    assert vllm.message == (
        "mistral-vllm needs 101.0 GiB available to start, and 90.0 GiB are: vLLM asks for 0.8 of "
        "121.7 GiB at its start"
    )


@pytest.mark.parametrize("available", [81.6, 82, 90, 95])
def test_what_is_said_to_set_is_enough(available: float) -> None:
    targets = {name: dict(data) for name, data in group_data.targets.items()}
    for finding in found(available):
        name = finding.message.split(" ")[0].removesuffix("-fallback")
        said = re.findall(r'"(\w+)": ([\d.]+)', finding.remedy)
        assert said, finding.remedy
        values = {key: float(value) if "." in value else int(value) for key, value in said}
        targets[name].setdefault("overrides", values)
    assert found(available, spark(targets=targets)) == []


def test_where_no_share_is_enough_that_is_said() -> None:
    [mistral, *_] = [item for item in found(60) if item.message.startswith("mistral needs")]
    assert mistral.remedy.startswith("Free 35.9 GiB")


def test_weights_that_are_here_make_it_a_warning() -> None:
    here = {name: {64 * "e": 20 * GIB} for name in models_of(PLAN)}
    assert {item.severity for item in found(90, models=here)} == {"warning"}


def test_a_host_that_serves_is_not_judged() -> None:
    assert found(20, units_up=["sglang-mistral4.service"]) == []
