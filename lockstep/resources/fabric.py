"""The fast link between Sparks: its interfaces, their addresses and MTU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster import Fabric, is_connectx
from lockstep.onhost.facts import network
from lockstep.resources.fact_comparison import (
    DriftRow,
    Expectation,
    Facts,
    Kind,
    SubjectView,
    any_value,
    rows_to_mend,
)

KINDS = {
    "interface": Kind(network.fabric, "error", mend="ip link", scope="nothing"),
    "fast link": Kind(network.fabric, "error", "deploy", scope="nothing"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the question to the reader; none where the deploy writes no addresses."""
    return {network.fabric: {}} if desired_state.plan.settings.fabric.netplan else {}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted interfaces with their addresses and MTU."""
    if desired_state.plan.settings.fabric.netplan:
        yield from _link_expectations(desired_state.plan.settings.fabric)


def _link_expectations(fabric: Fabric) -> Iterator[Expectation]:
    for name, address in fabric.interfaces.items():
        if not is_connectx(name):
            # No cable would bring it.
            yield any_value("interface", name)
        # The reader shows neither without a cable, because then neither is in force.
        is_among = partial(_is_among, address)
        yield Expectation("fast link", f"{name} addresses", address, is_among, if_there=True)
        yield Expectation("fast link", f"{name} MTU", str(fabric.mtu), if_there=True)


def _is_among(address: str, found: str) -> bool:
    return address in found.split()


def faults(fabric: Fabric, facts: Facts) -> list[DriftRow]:
    """Return what a deploy puts right at the link."""
    return [row for _, row in rows_to_mend(KINDS, _link_expectations(fabric), facts)]
