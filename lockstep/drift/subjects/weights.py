"""Drift of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.host.specs import weights_spec
from lockstep.onhost.facts import weights


def _forget(row: Row) -> tuple[str, ...]:
    """Forget that the files were verified; the next deploy reads and repairs them.

    What was verified is noted beside the hub's cache, in which the file is.
    """
    cache, _, path = row.item.partition("/models--")
    stamps = f"{cache.rpartition('/')[0]}/lockstep-verified"
    return ("find", stamps, "-name", f"{path.partition('/')[0]}@*", "-delete")


def _chown(row: Row) -> tuple[str, ...]:
    """Give a repository of the cache to whom the cache belongs."""
    owner = f"--reference={row.item.rpartition('/')[0]}"
    return ("chown", "--recursive", "--no-dereference", owner, row.item)


KINDS = {
    "weights": Kind(weights.every, "error", "deploy", scope="nothing"),
    "weights owner": Kind(weights.every, "error", mend=_chown, scope="odd"),
    "weights content": Kind(weights.every, "error", mend=_forget, scope="odd"),
    "other weights": Kind(weights.every, "note"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    return {weights.every: {"weights": weights_spec(this.plan, this.pins)}}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for repository in weights_spec(this.plan, this.pins)["repositories"]:
        item = f"{repository['model']}@{repository['revision'][:12]}"
        yield Expectation("weights", item, "complete")
