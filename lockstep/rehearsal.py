"""Every file of a deploy rendered once before any connection, so that what cannot be is known."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.artefacts import artefacts
from lockstep.bound import BoundTarget
from lockstep.packages import name_of
from lockstep.pins import GitPin, ImagePin, ModelPin, Pins, PythonPin, WheelPin
from lockstep.settings import Settings
from lockstep.wanted import wanted

_DIGEST = "sha256:" + 64 * "0"
_COMMIT = 40 * "0"


def rehearse(hosts: Sequence[tuple[Settings, tuple[BoundTarget, ...]]]) -> None:
    """Render all files of all hosts and keep none.

    What branches, tags and revisions stand for is not known yet; zeros stand in for it.

    Raises:
        LockstepError: a missing template value, two things that would write one file, a value
            that no unit can hold, hosts that want one thing in two ways.
    """
    asked = wanted(hosts)
    pins = Pins(
        python={
            item.key: PythonPin(
                item.asked,
                item.architecture,
                item.python,
                tuple(WheelPin(name_of(text), "0", "", "") for text in item.asked),
                {tree.url: tree.commit or _COMMIT for tree in item.trees},
                exclude_newer=item.exclude_newer,
            )
            for item in asked.python
        },
        git={item.url: GitPin(item.branch, item.commit or _COMMIT) for item in asked.git},
        images={item.reference: ImagePin(_DIGEST, item.architecture, 0) for item in asked.images},
        models={item.id: ModelPin(item.revision, _COMMIT, ()) for item in asked.models},
    )
    for settings, targets in hosts:
        artefacts(settings, targets, pins, engine_id=12 * "0", moe_flags={})
