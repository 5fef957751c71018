"""The record of changes of the hot model: those under way, and what the last one left.

It is no state: systemd knows the hot model. It says what a switch or a rollout that is cut off has
yet to do, who wants the switch to end, and which model was hot before. In /run, so that a power cut
leaves nothing that could start a model at boot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from lockstep.onhost.core import clock, errors, file_lock, layout
from lockstep.onhost.records import json_records

#: A switch, and the restart of a model by a deploy. A switch of a cluster may wait for a rollout.
Kind = Literal["switch", "rollout"]


@dataclass(frozen=True)
class HotWork:
    """The wanted model, the person, the model to bring back (or None), the cluster's switch."""

    model: str
    user: str
    previous: str | None = None
    cluster_switch: str | None = None


@dataclass(frozen=True)
class CancellationRequest:
    """A request to end the switch under way.

    Attributes:
        user: The person who asks.
        at: Time on the host's monotonic clock (s); switches that began later are not meant.
        restore: Whether the previous model comes back. Another switch that follows at once does
            without.
    """

    user: str
    at: float
    restore: bool


class SwitchCancellation(Exception):
    """The switch under way was cancelled."""

    def __init__(self, request: CancellationRequest) -> None:
        super().__init__(f"cancelled by {request.user}")
        self.request = request


@dataclass
class HotChange:
    """The record.

    Attributes:
        switch, rollout: The work under way or cut off, of each kind.
        cancellation: The last request to cancel a switch.
        hot: The model that the last switch made hot; None if it was cancelled in favour of another.
        previous: The model that was hot before it.
    """

    switch: HotWork | None = None
    rollout: HotWork | None = None
    cancellation: CancellationRequest | None = None
    hot: str | None = None
    previous: str | None = None

    @property
    def model_left_stopped(self) -> str | None:
        """The model that a cancelled switch stopped and left to the next one to bring back."""
        return None if self.hot else self.previous


def load(paths: layout.Paths) -> HotChange:
    """Return the record, empty if it is missing or unreadable."""
    return json_records.load(HotChange, paths.hot_change) or HotChange()


@contextmanager
def keep_on_record(paths: layout.Paths, kind: Kind, work: HotWork) -> Iterator[None]:
    """Keep `work` on record until it ends by itself, well or with a Problem."""
    with _hold_record(paths) as record:
        setattr(record, kind, work)
    try:
        yield
    except errors.Problem:
        take_unfinished_work(paths, kind)
        raise
    take_unfinished_work(paths, kind)


def take_unfinished_work(paths: layout.Paths, kind: Kind) -> HotWork | None:
    """Remove and return the work on record: a second interruption is not mended again."""
    work: HotWork | None = getattr(load(paths), kind)
    if work is not None:
        with _hold_record(paths) as record:
            setattr(record, kind, None)
    return work


def record_hot_model(paths: layout.Paths, hot: str | None, previous: str | None) -> None:
    """Record the model that a switch made hot, and the one before it; raise OSError on failure."""
    with _hold_record(paths) as record:
        record.hot, record.previous = hot, previous


def request_cancellation(paths: layout.Paths, user: str, *, restore: bool) -> None:
    """Leave a request, which the switch sees while it waits for a start; only root may."""
    with _hold_record(paths) as record:
        record.cancellation = CancellationRequest(user, clock.now(), restore)


def raise_if_cancelled(paths: layout.Paths, since: float) -> None:
    """Raise SwitchCancellation if there was a request since then (s of the monotonic clock).

    A request counts once: what the switch does then can be cancelled anew.
    """
    request = load(paths).cancellation
    if request is not None and request.at >= since:
        with _hold_record(paths) as record:
            record.cancellation = None
        raise SwitchCancellation(request)


@contextmanager
def _hold_record(paths: layout.Paths) -> Iterator[HotChange]:
    """Yield the record for a change, and replace it in one step."""
    with file_lock.hold_lock(paths.run / "hot-change.lock"):
        record = load(paths)
        yield record
        json_records.save(paths.hot_change, record)
