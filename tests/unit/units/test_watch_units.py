"""The unit that makes a model hot after a boot; its text is compared in tests/render."""

from __future__ import annotations

from typing import Any

import pair
import pytest
from a_spark import pins_for, spark

from lockstep.drift.subjects import units
from lockstep.drift.subjects.kind import Seen
from lockstep.host.intended import Intended
from lockstep.onhost.records import boots

PATH = f"/etc/systemd/system/{boots.UNIT}"


def made(**data: Any) -> Intended:
    plan = spark(**data)
    return Intended(plan, pins_for(plan))


@pytest.mark.parametrize(("boot", "there"), [("none", False), ("last", True), ("mistral", True)])
def test_a_host_has_it_where_the_inventory_asks_for_it(boot: str, there: bool) -> None:
    this = made(boot=boot)
    assert (PATH in {file.path for file in this.files("switch")}) is there
    assert this.boot_units == ([boots.UNIT] if there else [])


def test_it_begins_at_a_boot_and_need_not_run_before() -> None:
    this = made(boot="last")
    seen = Seen({}, b"")
    asked = {
        (each.kind, each.value) for each in units.expected(this, seen) if each.item == boots.UNIT
    }
    assert asked == {("unit", "loaded"), ("unit path", PATH), ("boot", "yes")}


def test_a_member_of_a_cluster_waits_for_its_agent_and_may_ask_the_others() -> None:
    lines = pair.rendered(0)[PATH].text.splitlines()
    assert "After=network-online.target docker.service lockstep-cluster.service" in lines
    allowed = [line.partition("=")[2] for line in lines if line.startswith("IPAddressAllow=")]
    assert allowed == ["localhost", "10.77.0.11", "10.77.1.11", "10.77.0.12", "10.77.1.12"]
