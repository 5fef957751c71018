"""Fair queue of requests for several models: a state machine without a clock.

A request for the hot model passes. One for another model waits until nothing runs and the hot
model had its minimum time. After that time, later requests for the hot model wait behind it.
First come, first served; all requests that wait for one model share one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lockstep.onhost.core import errors
from lockstep.onhost.gateway.model_names import AUTO
from lockstep.onhost.systemd import transient_job

NONE = "none"  #: In a model's place: no model.
FAILED_S = 60.0  #: Seconds for which a failed model is not tried again.
SETTLES_S = 10.0  #: Seconds within which a model must be seen hot after a switch.
#: Seconds after which a retry is worthwhile if something else blocks, as a full queue.
FULL_S = 30.0
_HOT = (errors.EXIT_DONE, errors.EXIT_FALLBACK)


@dataclass(eq=False)
class TurnRefusal(Exception):
    """A request that its model does not answer: the reason, and seconds until a retry."""

    words: str
    retry_after_s: float


@dataclass(frozen=True)
class QueueView:
    """One observation of the host."""

    #: Models that are answered now: the hot one, those whose fallback it is, and with any of them
    #: `auto`.
    serves: frozenset[str] = frozenset()
    hot_s: float = 0.0  #: Seconds for which it has been hot.
    #: Requests that the gateway has at the hot model: those that passed this queue, and those of
    #: the model's own port.
    running: int = 0
    #: Reason why nothing can be switched now, as "ben is switching to qwen"; else "".
    moving: str = ""
    #: Models that no request may make hot, with the reason.
    busy_models: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class QueuedRequest:
    """One request: its model and person; `notify` is called at its outcome.

    `due` is set when a switch to its model was made while it waited.
    """

    model: str
    person: str | None
    notify: Callable[[], None]
    state: Literal["waits", "served", "refused", "left"] = "waits"
    refusal: TurnRefusal | None = None
    due: bool = False


@dataclass(frozen=True)
class _Settling:
    """A finished switch: its model, the deadline to be seen hot, and the message otherwise."""

    model: str
    until: float
    words: str


class FairQueue:
    """Waiting and running requests, and the switch under way for them; times are in seconds."""

    def __init__(self, least_hot_s: float, longest_queue: int) -> None:
        """Set the hot model's minimum time `least_hot_s` and the limit of waiting requests."""
        self._least_hot_s = least_hot_s
        self._longest_queue = longest_queue
        self._waiting: list[QueuedRequest] = []
        self._running = 0
        self._switching: str | None = None
        self._settling: _Settling | None = None
        self._failures: dict[str, tuple[float, str]] = {}

    @property
    def has_no_waiter_or_switch(self) -> bool:
        """True while nobody waits and no switch is under way."""
        return not self._waiting and self._switching is None

    @property
    def waiting_by_model(self) -> Counter[str]:
        """Number of waiting requests by model."""
        return Counter(waiter.model for waiter in self._waiting)

    def admit_or_queue(self, waiter: QueuedRequest, host_view: QueueView, now: float) -> None:
        """Let a request pass, refuse it, or queue it."""
        model = waiter.model
        if self._is_free_to_pass(waiter, self._waiting, host_view):
            self._let_request_pass(waiter)
            return
        cold = model not in host_view.serves
        until, words = self._failures.get(model, (now, ""))
        if cold and until > now:
            self._refuse_request(waiter, words, until - now)
        elif cold and model in host_view.busy_models:
            self._refuse_request(waiter, host_view.busy_models[model])
        elif len(self._waiting) >= self._longest_queue:
            self._refuse_request(waiter, f"{len(self._waiting)} requests wait for a switch already")
        else:
            self._waiting.append(waiter)

    def end_request(self, waiter: QueuedRequest) -> None:
        """Remove a request that has ended, whatever its outcome."""
        if waiter.state == "served":
            self._running -= 1
        elif waiter.state == "waits":
            self._waiting.remove(waiter)
        waiter.state = "left"

    def settle_waiting_requests(self, host_view: QueueView, now: float) -> None:
        """Let requests pass or refuse them, by an observation of the host."""
        self._confirm_ended_switch(host_view, now)
        ahead: list[QueuedRequest] = []
        for waiter in list(self._waiting):
            if self._is_free_to_pass(waiter, ahead, host_view):
                self._let_request_pass(waiter)
            elif waiter.model in host_view.busy_models and waiter.model not in host_view.serves:
                self._refuse_request(waiter, host_view.busy_models[waiter.model])
            elif waiter.model == AUTO and not self._is_any_model_hot_or_coming(host_view):
                self._refuse_request(waiter, "no model is hot")
            else:
                ahead.append(waiter)

    def next_request_to_switch_for(self, host_view: QueueView) -> QueuedRequest | None:
        """Return the request for which a switch may begin, or None.

        Clients of the hot engine's own port are not known here.
        """
        if (
            self._switching
            or self._settling
            or self._running
            or host_view.running
            or host_view.moving
        ):
            return None
        if host_view.serves and host_view.hot_s < self._least_hot_s:
            return None
        cold = (waiter for waiter in self._waiting if waiter.model not in {AUTO, *host_view.serves})
        return next(cold, None)

    def may_stop_hot_model(self, host_view: QueueView) -> bool:
        """Tell whether the hot model may be stopped: no request waits or runs."""
        obstacle = self._waiting or self._switching or self._settling or self._running
        return not (obstacle or host_view.running or host_view.moving)

    def begin_switch(self, model: str) -> None:
        """Begin a switch to a model or to `NONE`; no request passes until it has ended."""
        self._switching = model

    def end_switch(self, code: int, output: str, now: float) -> None:
        """End the switch, by the exit code of switch.sh and its last words."""
        model, self._switching = self._switching, None
        assert model is not None
        if code == errors.EXIT_LOCKED or model == NONE:
            # Somebody else switched first, or no switch was needed; the hot model will be seen.
            return
        if code not in (*_HOT, transient_job.EXIT_ALONE):
            self._refuse_waiting_for_model(model, f"the switch to {model} failed: {output}", now)
            return
        words = f"the switch to {model} has ended, but it is not hot: {output}"
        self._settling = _Settling(model, now + SETTLES_S, words)
        for waiter in self._waiting:
            waiter.due |= waiter.model == model

    def refuse_all_waiting(self, words: str) -> None:
        """Refuse all waiting requests."""
        for waiter in list(self._waiting):
            self._refuse_request(waiter, words)

    def _is_free_to_pass(
        self, waiter: QueuedRequest, ahead: Sequence[QueuedRequest], host_view: QueueView
    ) -> bool:
        if waiter.model not in host_view.serves or self._switching:
            return False
        over = host_view.hot_s >= self._least_hot_s
        return waiter.due or not (
            over and any(earlier_waiter.model not in host_view.serves for earlier_waiter in ahead)
        )

    def _is_any_model_hot_or_coming(self, host_view: QueueView) -> bool:
        """Tell whether a model is hot or about to be."""
        under_way = self._switching or self._settling or host_view.moving
        return bool(host_view.serves or under_way or {*self.waiting_by_model} - {AUTO})

    def _confirm_ended_switch(self, host_view: QueueView, now: float) -> None:
        settling = self._settling
        if settling is None:
            return
        if settling.model in host_view.serves:
            self._settling = None
        elif not host_view.moving and now >= settling.until:
            self._settling = None
            self._refuse_waiting_for_model(settling.model, settling.words, now)

    def _refuse_waiting_for_model(self, model: str, words: str, now: float) -> None:
        self._failures[model] = (now + FAILED_S, words)
        for waiter in [
            waiter_of_model for waiter_of_model in self._waiting if waiter_of_model.model == model
        ]:
            self._refuse_request(waiter, words, FAILED_S)

    def _let_request_pass(self, waiter: QueuedRequest) -> None:
        self._running += 1
        self._settle_request(waiter, "served")

    def _refuse_request(
        self, waiter: QueuedRequest, words: str, retry_after_s: float = FULL_S
    ) -> None:
        waiter.refusal = TurnRefusal(words, retry_after_s)
        self._settle_request(waiter, "refused")

    def _settle_request(self, waiter: QueuedRequest, state: Literal["served", "refused"]) -> None:
        waiter.state = state
        # A request that has just arrived is not in the queue yet.
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        waiter.notify()
