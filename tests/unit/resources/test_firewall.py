"""The firewall's table: what diff says of it."""

from __future__ import annotations

import pytest
from a_snapshot import diff_report, host, only, perfect

from lockstep.drift.compare import display
from lockstep.resources import questions


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "nothing"), ("other rules", "other rules"), (32 * "0", "other content")],
)
def test_a_table_that_is_gone_or_has_other_rules_is_named(value: str | None, words: str) -> None:
    spark = host()
    snapshot = perfect(spark)
    del snapshot["facts"]["firewall table"]["inet lockstep"]
    if value is not None:
        snapshot["facts"]["firewall table"]["inet lockstep"] = value
    row = only(diff_report((spark, snapshot)))
    assert (row.severity, row.kind, row.item, row.how) == (
        *("error", "firewall table", "inet lockstep", "deploy"),
    )
    assert display(row)[1] == [("", f"expected as deployed, found {words}")]


def test_each_host_s_own_rules_count() -> None:
    open_host = host("spark2", firewall={"open": ("tcp/3389",)})
    pairs = [(desired_state, perfect(desired_state)) for desired_state in (host(), open_host)]
    assert diff_report(*pairs).differences == ()
    first, second = (snapshot["facts"] for _, snapshot in pairs)
    first["firewall table"], second["firewall table"] = (
        second["firewall table"],
        first["firewall table"],
    )
    assert len(diff_report(*pairs).differences) == 2


def test_without_a_firewall_nothing_is_asked_or_said() -> None:
    spark = host(firewall={"enabled": False})
    assert "firewall" in questions(host())
    assert "firewall" not in questions(spark)
    snapshot = perfect(spark)
    snapshot["facts"]["firewall table"] = {"inet lockstep": "other rules"}
    assert diff_report((spark, snapshot)).differences == ()
