"""The firewall's table in force, whose rules the next boot loads too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import firewall
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.fact_comparison import Expectation, Facts, Kind, SubjectView, rows_to_mend
from lockstep.resources.files import KEY
from lockstep.system.firewall import RULES, TABLE

KINDS = {
    "firewall table": Kind(firewall.read, "error", "deploy", scope="nothing", is_sealed=True),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """Return the question to the reader; none where the inventory wants no firewall."""
    return {firewall.read: {}} if desired_state.plan.settings.firewall.enabled else {}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """Yield the wanted rules."""
    for file in desired_state.files("firewall"):
        if file.path == RULES:
            yield _table_expectation(file.text, host_view.key.hex())


def _table_expectation(rules: str, key: str) -> Expectation:
    return Expectation("firewall table", f"inet {TABLE}", seal(key, rules.encode()))


def is_in_force(rules: str, facts: Facts) -> bool:
    """Tell whether a deploy leaves the table alone; the facts are under this run's key."""
    return not rows_to_mend(KINDS, [_table_expectation(rules, KEY)], facts)
