"""The unit that makes a model hot after a boot; its text is compared in tests/render."""

import pytest
from a_spark import pins_for, spark

from lockstep.host.desired_state import DesiredState
from lockstep.onhost.records import models_by_boot
from lockstep.resources import units
from lockstep.resources.fact_comparison import SubjectView

PATH = f"/etc/systemd/system/{models_by_boot.UNIT}"


@pytest.mark.parametrize(("boot", "is_there"), [("none", False), ("last", True), ("mistral", True)])
def test_a_host_has_it_where_the_inventory_asks_for_it(boot: str, is_there: bool) -> None:
    plan = spark(boot=boot)
    state = DesiredState(plan, pins_for(plan))
    assert (PATH in {file.path for file in state.files("switch")}) is is_there
    assert state.boot_units == ([models_by_boot.UNIT] if is_there else [])
    # It begins at a boot and need not run before.
    rows = units.expectations(state, SubjectView({}, b""))
    wanted_facts = {(row.kind, row.value) for row in rows if row.item == models_by_boot.UNIT}
    kinds = {("unit", "loaded"), ("unit path", PATH), ("boot", "yes"), ("restart key", "")}
    assert wanted_facts == (kinds if is_there else set())
