"""The unit that makes a model hot after a boot; its text is compared in tests/render."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.onhost.records import models_by_boot
from lockstep.resources import units
from lockstep.resources.fact_comparison import SubjectView

PATH = f"/etc/systemd/system/{models_by_boot.UNIT}"


def watch_host(**data: Any) -> DesiredState:
    plan = spark(**data)
    return DesiredState(plan, pins_for(plan))


@pytest.mark.parametrize(("boot", "is_there"), [("none", False), ("last", True), ("mistral", True)])
def test_a_host_has_it_where_the_inventory_asks_for_it(boot: str, is_there: bool) -> None:
    desired_state = watch_host(boot=boot)
    assert (PATH in {file.path for file in desired_state.files("switch")}) is is_there
    assert desired_state.boot_units == ([models_by_boot.UNIT] if is_there else [])


def test_it_begins_at_a_boot_and_need_not_run_before() -> None:
    desired_state = watch_host(boot="last")
    host_view = SubjectView({}, b"")
    expectations = {
        (expectation.kind, expectation.value)
        for expectation in units.expectations(desired_state, host_view)
        if expectation.item == models_by_boot.UNIT
    }
    assert expectations == {
        ("unit", "loaded"),
        ("unit path", PATH),
        ("boot", "yes"),
        ("restart key", ""),
    }
