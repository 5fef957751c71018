"""The fast link and the firewall's table: what diff says of them."""

from typing import Any

import pytest
from a_snapshot import diff_report, host, only, perfect

from lockstep.drift.compare import Difference, display
from lockstep.host.desired_state import DesiredState
from lockstep.resources import questions

PORT, ADAPTER = "enp1s0f0np0", "enx001122334455"


def linked_host(interface: str, netplan: bool = True) -> DesiredState:
    """A host whose fast link is one interface."""
    return host(
        fabric={"interfaces": {interface: "10.77.0.11/24"}, "netplan": netplan},
        fabric_address="10.77.0.11",
    )


def differences(state: DesiredState, facts: dict[str, Any]) -> tuple[Difference, ...]:
    """The lines of diff about a host whose link shows these facts."""
    snapshot = perfect(state)
    for kind in ("interface", "fast link"):
        snapshot["facts"].pop(kind, None)
    snapshot["facts"] |= facts
    return diff_report((state, snapshot)).differences


@pytest.mark.parametrize(("item", "found"), [("MTU", "1500"), ("addresses", "110.77.0.11/24")])
def test_an_address_or_mtu_that_is_not_in_force_is_named(item: str, found: str) -> None:
    link = {f"{PORT} MTU": "9000", f"{PORT} addresses": "fe80::1/64 10.77.0.11/24"}
    assert differences(linked_host(PORT), {"fast link": link}) == ()
    [row] = differences(linked_host(PORT), {"fast link": {**link, f"{PORT} {item}": found}})
    assert (row.severity, row.item, row.how) == ("error", f"{PORT} {item}", "deploy")


def test_what_no_cable_shows_or_no_deploy_writes_is_not_missed_and_an_absent_adapter_is() -> None:
    assert differences(linked_host(PORT), {}) == ()
    [row] = differences(linked_host(ADAPTER), {})
    assert (row.kind, row.item, row.how) == ("interface", ADAPTER, "by hand")
    assert row.command == "sudo ip link"
    assert "network.fabric" in questions(linked_host(PORT))
    own = linked_host(PORT, netplan=False)
    assert "network.fabric" not in questions(own)
    assert differences(own, {"fast link": {f"{PORT} addresses": "none"}}) == ()


def test_an_mtu_that_the_deploy_puts_right_is_not_left_to_people_too() -> None:
    first, second = linked_host(PORT), host("spark2")
    pairs = [(desired_state, perfect(desired_state)) for desired_state in (first, second)]
    for (_, snapshot), mtu in zip(pairs, ("1500", "9000"), strict=True):
        snapshot["facts"]["network"] = {f"{PORT} mtu": mtu}
    pairs[0][1]["facts"]["fast link"][f"{PORT} MTU"] = "1500"
    row = only(diff_report(*pairs))
    assert (row.host, row.kind, row.how) == ("spark1", "fast link", "deploy")


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "nothing"), ("other rules", "other rules"), (32 * "0", "other content")],
)
def test_a_table_that_is_gone_or_has_other_rules_is_named(value: str | None, words: str) -> None:
    spark = host()
    snapshot = perfect(spark)
    del snapshot["facts"]["firewall table"]["inet lockstep"]
    snapshot["facts"]["firewall table"] |= {"inet lockstep": value} if value else {}
    row = only(diff_report((spark, snapshot)))
    assert (row.severity, row.item, row.how) == ("error", "inet lockstep", "deploy")
    assert display(row)[1] == [("", f"expected as deployed, found {words}")]


def test_without_a_firewall_nothing_is_asked_or_said() -> None:
    spark = host(firewall={"enabled": False})
    assert "firewall" in questions(host())
    assert "firewall" not in questions(spark)
    snapshot = perfect(spark)
    snapshot["facts"]["firewall table"] = {"inet lockstep": "other rules"}
    assert diff_report((spark, snapshot)).differences == ()
