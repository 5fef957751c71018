"""Drift of the models' answers: nonsense in the daily check."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.files.managed_file import command
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.facts import deploy_records
from lockstep.resources.fact_comparison import Expectation, Kind, SubjectView

_ASK_AGAIN = " ".join(command("sense", "{item}"))

KINDS = {
    "sense": Kind(deploy_records.sense_findings, "error", mend=_ASK_AGAIN, scope="nothing"),
}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    for name in host_view.facts.get("sense", {}):
        yield Expectation("sense", name, "no nonsense")
