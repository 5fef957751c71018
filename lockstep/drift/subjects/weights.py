"""Drift of weights, and of their loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import weights_spec
from lockstep.onhost.facts import weights
from lockstep.resources.fact_comparison import DriftRow, Expectation, Kind, SubjectView


def _forget(row: DriftRow) -> tuple[str, ...]:
    """Return the command that marks files as unverified, so the next deploy repairs them.

    The notes of verified files stand beside the hub's cache that holds the files.
    """
    cache, _, path = row.item.partition("/models--")
    stamps = f"{cache.rpartition('/')[0]}/lockstep-verified"
    return ("find", stamps, "-name", f"{path.partition('/')[0]}@*", "-delete")


def _chown(row: DriftRow) -> tuple[str, ...]:
    """Return the command that gives a repository of the cache to the cache's owner."""
    owner = f"--reference={row.item.rpartition('/')[0]}"
    return ("chown", "--recursive", "--no-dereference", owner, row.item)


KINDS = {
    "weights": Kind(weights.every, "error", "deploy", scope="nothing"),
    "weights owner": Kind(weights.every, "error", mend=_chown, scope="odd"),
    "weights content": Kind(weights.every, "error", mend=_forget, scope="odd"),
    "other weights": Kind(weights.every, "note"),
    "loading": Kind(weights.slow_loads, scope="odd"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {weights.every: {"weights": weights_spec(desired_state.plan, desired_state.pins)}}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    for repository in weights_spec(desired_state.plan, desired_state.pins)["repositories"]:
        item = f"{repository['model']}@{repository['revision'][:12]}"
        yield Expectation("weights", item, "complete")
