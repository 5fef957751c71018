"""The request to cancel a switch: a file that the switch checks while it waits for a start."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic, clock, layout


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


def request_cancellation(paths: layout.Paths, user: str, *, restore: bool) -> None:
    """Leave a request; only root may."""
    request = CancellationRequest(user, clock.now(), restore)
    atomic.write_json(paths.cancellation, asdict(request), mode=0o600)


def raise_if_cancelled(paths: layout.Paths, since: float) -> None:
    """Raise SwitchCancellation if there was a request since then (s of the monotonic clock).

    A request counts once: what the switch does then can be cancelled anew.
    """
    try:
        request = CancellationRequest(**atomic.read_json(paths.cancellation))
    except TypeError:
        return
    if request.at >= since:
        paths.cancellation.unlink(missing_ok=True)
        raise SwitchCancellation(request)
