"""The request to cancel a switch: a file that the switch looks at while it waits for a start."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic, clock, layout


@dataclass(frozen=True)
class Request:
    """Somebody's wish that the switch under way ends.

    Attributes:
        user: Who asks.
        at: When, on the host's monotonic clock (s): a switch that began later is not meant.
        restore: Whether the model before comes back. Another switch that follows at once does
            without.
    """

    user: str
    at: float
    restore: bool


class Cancelled(Exception):
    """The switch that is under way is not wanted any more."""

    def __init__(self, request: Request) -> None:
        super().__init__(f"cancelled by {request.user}")
        self.request = request


def ask(paths: layout.Paths, user: str, *, restore: bool) -> None:
    """Leave a request; only root may."""
    request = Request(user, clock.now(), restore)
    atomic.write_json(paths.cancellation, asdict(request), mode=0o600)


def check(paths: layout.Paths, since: float) -> None:
    """Raise Cancelled where somebody has asked since then (s of the monotonic clock).

    A request holds once: what the switch does then can be cancelled anew.
    """
    try:
        request = Request(**atomic.read_json(paths.cancellation))
    except TypeError:
        return
    if request.at >= since:
        paths.cancellation.unlink(missing_ok=True)
        raise Cancelled(request)
