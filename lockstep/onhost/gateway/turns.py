"""Whose turn it is where requests for several targets come: a state machine, without a clock.

A request for what is hot passes. One for another target waits until nothing runs and the hot target
had its least time; from the end of that time on, later requests for the hot one wait behind it.
First come, first served; all who wait for one target share one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lockstep.onhost.core import errors
from lockstep.onhost.gateway.models import AUTO
from lockstep.onhost.systemd import transient

NONE = "none"  #: As a target: no model.
FAILED_S = 60.0  #: How long a target that failed is not tried again, seconds.
SETTLES_S = 10.0  #: Until a target that was switched to must be seen hot, seconds.
#: Whom something else keeps out, as a full queue, may come again after so long, seconds.
FULL_S = 30.0
_HOT = (errors.EXIT_DONE, errors.EXIT_FALLBACK)


@dataclass(eq=False)
class Refused(Exception):
    """Why a request is not answered by its model, and when it may be asked again, seconds."""

    words: str
    retry_after_s: float


@dataclass(frozen=True)
class Seen:
    """One look at the host."""

    #: Targets that are answered now: the hot one, those whose fallback it is, and with any of them
    #: `auto`.
    serves: frozenset[str] = frozenset()
    hot_s: float = 0.0  #: How long it has been hot, seconds.
    running: int = 0  #: Requests at it that nobody here let pass.
    #: Why nothing can be switched now, as "ben is switching to qwen"; "" where it can.
    moving: str = ""
    #: Targets that no request may have made hot, and why.
    taken: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Waiter:
    """One request: the target that it asks for, and who asks; `notify` is called at its outcome.

    `due`: a switch to its target was made while it waited.
    """

    target: str
    person: str | None
    notify: Callable[[], None]
    state: Literal["waits", "served", "refused", "left"] = "waits"
    refusal: Refused | None = None
    due: bool = False


@dataclass(frozen=True)
class _Settling:
    """A switch that has ended: its target, until when that must be hot, and what is said else."""

    target: str
    until: float
    words: str


class Turns:
    """Who waits, who runs, and the switch that is under way for them; times are in seconds."""

    def __init__(self, least_hot_s: float, bound: int) -> None:
        """`least_hot_s`: before another target may take the hot one's place; `bound`: who wait."""
        self._least_hot_s = least_hot_s
        self._bound = bound
        self._waiting: list[Waiter] = []
        self._running = 0
        self._switching: str | None = None
        self._settling: _Settling | None = None
        self._failed: dict[str, tuple[float, str]] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody waits and no switch is under way."""
        return not self._waiting and self._switching is None

    @property
    def waiting(self) -> Counter[str]:
        """How many wait for each target."""
        return Counter(waiter.target for waiter in self._waiting)

    def arrive(self, waiter: Waiter, seen: Seen, now: float) -> None:
        """Let a request pass, refuse it, or have it wait."""
        target = waiter.target
        if self._may_pass(waiter, self._waiting, seen):
            self._serve(waiter)
            return
        cold = target not in seen.serves
        until, words = self._failed.get(target, (now, ""))
        if cold and until > now:
            self._refuse(waiter, words, until - now)
        elif cold and target in seen.taken:
            self._refuse(waiter, seen.taken[target])
        elif len(self._waiting) >= self._bound:
            self._refuse(waiter, f"{len(self._waiting)} requests wait for a switch already")
        else:
            self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """A request has ended, in whichever way."""
        if waiter.state == "served":
            self._running -= 1
        elif waiter.state == "waits":
            self._waiting.remove(waiter)
        waiter.state = "left"

    def step(self, seen: Seen, now: float) -> None:
        """Let pass and refuse whom one can, by a look at the host."""
        self._settle(seen, now)
        ahead: list[Waiter] = []
        for waiter in list(self._waiting):
            if self._may_pass(waiter, ahead, seen):
                self._serve(waiter)
            elif waiter.target in seen.taken and waiter.target not in seen.serves:
                self._refuse(waiter, seen.taken[waiter.target])
            elif waiter.target == AUTO and not self._comes(seen):
                self._refuse(waiter, "no model is hot")
            else:
                ahead.append(waiter)

    def next(self, seen: Seen) -> Waiter | None:
        """For whom a switch may begin now; the hot engine's own clients are not known here."""
        if self._switching or self._settling or self._running or seen.running or seen.moving:
            return None
        if seen.serves and seen.hot_s < self._least_hot_s:
            return None
        cold = (each for each in self._waiting if each.target not in {AUTO, *seen.serves})
        return next(cold, None)

    def may_rest(self, seen: Seen) -> bool:
        """Whether what is hot may be let go now: nobody waits, and nothing runs."""
        hindered = self._waiting or self._switching or self._settling or self._running
        return not (hindered or seen.running or seen.moving)

    def begin(self, target: str) -> None:
        """A switch begins, to a target or to `NONE`: nobody passes until it has ended."""
        self._switching = target

    def ended(self, code: int, said: str, now: float) -> None:
        """That switch has ended, with an exit code of switch.sh and its last words."""
        target, self._switching = self._switching, None
        assert target is not None
        if code == errors.EXIT_LOCKED or target == NONE:
            # Somebody else was first, or nobody asked for anything; what is hot is seen.
            return
        if code not in (*_HOT, transient.EXIT_ALONE):
            self._fail(target, f"the switch to {target} failed: {said}", now)
            return
        words = f"the switch to {target} has ended, but it is not hot: {said}"
        self._settling = _Settling(target, now + SETTLES_S, words)
        for waiter in self._waiting:
            waiter.due |= waiter.target == target

    def give_up(self, words: str) -> None:
        """Refuse everybody who waits."""
        for waiter in list(self._waiting):
            self._refuse(waiter, words)

    def _may_pass(self, waiter: Waiter, ahead: Sequence[Waiter], seen: Seen) -> bool:
        if waiter.target not in seen.serves or self._switching:
            return False
        over = seen.hot_s >= self._least_hot_s
        return waiter.due or not (over and any(each.target not in seen.serves for each in ahead))

    def _comes(self, seen: Seen) -> bool:
        """Whether a model is hot, or one will be."""
        under_way = self._switching or self._settling or seen.moving
        return bool(seen.serves or under_way or {*self.waiting} - {AUTO})

    def _settle(self, seen: Seen, now: float) -> None:
        settling = self._settling
        if settling is None:
            return
        if settling.target in seen.serves:
            self._settling = None
        elif not seen.moving and now >= settling.until:
            self._settling = None
            self._fail(settling.target, settling.words, now)

    def _fail(self, target: str, words: str, now: float) -> None:
        self._failed[target] = (now + FAILED_S, words)
        for waiter in [each for each in self._waiting if each.target == target]:
            self._refuse(waiter, words, FAILED_S)

    def _serve(self, waiter: Waiter) -> None:
        self._running += 1
        self._decide(waiter, "served")

    def _refuse(self, waiter: Waiter, words: str, retry_after_s: float = FULL_S) -> None:
        waiter.refusal = Refused(words, retry_after_s)
        self._decide(waiter, "refused")

    def _decide(self, waiter: Waiter, state: Literal["served", "refused"]) -> None:
        waiter.state = state
        # One that has just come does not wait yet.
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        waiter.notify()
