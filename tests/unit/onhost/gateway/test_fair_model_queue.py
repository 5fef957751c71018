"""The order of waiting requests, whatever comes and whatever fails."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.onhost.gateway.fair_model_queue import (
    FAILED_S,
    SETTLES_S,
    FairQueue,
    QueuedRequest,
    QueueView,
)
from lockstep.onhost.gateway.model_names import AUTO

LEAST_S, BOUND = 100.0, 4
NAMES = ("qwen", "mistral", "tiny")
#: Its fallback answers for mistral.
SPARE = "spare"


@dataclass
class House:
    """A host with a clock of its own. `hot` answers since `since`; `moving` is somebody else."""

    hot: str | None = "qwen"
    since: float = 0.0
    now: float = 1000.0
    moving: str = ""
    busy_models: dict[str, str] = field(default_factory=dict)
    turns: FairQueue = field(default_factory=lambda: FairQueue(LEAST_S, BOUND))
    every: list[QueuedRequest] = field(default_factory=list)
    outcomes: list[QueuedRequest] = field(default_factory=list)
    started_models: list[str] = field(default_factory=list)
    switching: str | None = None

    def host_view(self) -> QueueView:
        serves = {self.hot, "mistral" if self.hot == SPARE else self.hot, AUTO} if self.hot else ()
        return QueueView(frozenset(serves), self.now - self.since, 0, self.moving, self.busy_models)

    def comes(self, model: str) -> QueuedRequest:
        waiter = QueuedRequest(model, "anna", lambda: self.outcomes.append(waiter))
        self.every.append(waiter)
        self.turns.admit_or_queue(waiter, self.host_view(), self.now)
        return waiter

    def look(self, seconds: float = 0.0) -> None:
        """Do one step, as the gateway does twice a second."""
        self.now += seconds
        self.turns.settle_waiting_requests(self.host_view(), self.now)
        waiter = self.turns.next_request_to_switch_for(self.host_view())
        if waiter:
            assert not self.running(), "a switch begins while a request runs"
            self.turns.begin_switch(waiter.model)
            self.started_models.append(waiter.model)
            self.switching = waiter.model

    def ends(self, code: int = 0, hot: str | None = None) -> None:
        """The switch ends, with `hot` hot, or what was asked for."""
        assert self.switching
        if code in (0, 141):
            self.hot = hot or self.switching
        elif code == 3:
            self.hot = SPARE
        elif code == 4:
            self.hot = None
        if code != 75:
            self.since = self.now
        self.switching = None
        self.turns.end_switch(code, "its last words", self.now)

    def running(self) -> list[QueuedRequest]:
        return [waiter for waiter in self.every if waiter.state == "served"]

    @property
    def states(self) -> list[str]:
        """The state of each request, in the order of their coming."""
        return [waiter.state for waiter in self.every]

    def play(self, steps: str):
        """Play steps: the name of a model is a request for it; others may have a value."""
        for step in steps.split():
            action, _, value = step.partition(":")
            match action:
                case "leaves":
                    # Whoever has an outcome already has left.
                    for waiter in self.every[int(value) : int(value) + 1]:
                        if waiter.state in ("waits", "served"):
                            self.turns.end_request(waiter)
                case "looks":
                    self.look(float(value or 0))
                case "ends" if self.switching:
                    code, _, hot = value.partition(":")
                    self.ends(int(code or 0), hot or None)
                case "hot" if not self.switching:
                    self.hot, self.since = value or None, self.now
                case "moving":
                    self.moving = "ben is switching" if int(value) else ""
                case "ends" | "hot":
                    pass  # There is no switch to end, or one is under way.
                case _:
                    assert action in (*NAMES, AUTO), step
                    self.comes(action)
        return self


def words(waiter: QueuedRequest) -> str:
    assert waiter.state == "refused"
    return waiter.refusal.words


#: Two requests wait behind one that began before, while the least time of qwen passes.
BEHIND = "hot:qwen qwen mistral qwen looks:100 qwen"
SWITCHED = f"{BEHIND} leaves:0 leaves:2 looks ends looks"
SHARED = "mistral tiny mistral looks ends looks:100"
TAKEN = "mistral looks moving:1 ends:75 looks:1"
LOST = "mistral looks moving:1 ends:141:qwen looks:50"


@pytest.mark.parametrize(
    ("steps", "states", "started_models"),
    [
        # Nobody passes to an engine that is being stopped.
        ("mistral looks mistral qwen", "waits waits waits", "mistral"),
        ("mistral looks mistral qwen ends looks", "served served waits", "mistral"),
        # What is hot has its least time; where nothing is, nothing is waited for.
        ("hot:qwen mistral looks:99", "waits", ""),
        ("hot:qwen mistral looks:99 looks:1", "waits", "mistral"),
        ("hot: mistral looks", "waits", "mistral"),
        # Who waits is not starved by requests for what is hot, which have their turn again.
        (BEHIND, "served waits served waits", ""),
        (SWITCHED, "left served left waits", "mistral"),
        (f"{SWITCHED} leaves:1 looks:100 ends looks", "left left left served", "mistral qwen"),
        # Who came behind another model shares the switch all the same.
        (SHARED, "served waits served", "mistral"),
        (f"{SHARED} leaves:0 leaves:2 looks", "left waits left", "mistral tiny"),
        # Whatever is hot is never switched for.
        ("mistral auto", "waits waits", ""),
        ("mistral auto looks ends looks:100", "served served", "mistral"),
        ("hot: mistral auto looks ends:4 looks", "refused refused", "mistral"),
        # A model that failed passes where somebody made it hot.
        ("mistral looks ends:1 hot:mistral mistral", "refused served", "mistral"),
        # The fallback answers for its model.
        ("mistral looks ends:3 looks", "served", "mistral"),
        # Another operator who was first is no failure.
        (TAKEN, "waits", "mistral"),
        (f"{TAKEN} moving:0 looks:1", "waits", "mistral mistral"),
        # After a lost display what is hot decides.
        (LOST, "waits", "mistral"),
        (f"{LOST} hot:mistral moving:0 looks", "served", "mistral"),
        # A switch that says that it went well and did not is not tried for ever.
        ("mistral looks ends:0:qwen looks:9", "waits", "mistral"),
        ("mistral looks ends:0:qwen looks:9 looks:1 mistral", "refused refused", "mistral"),
    ],
)
def test_requests_pass_and_models_are_switched_to_in_a_fair_order(steps, states, started_models):
    house = House().play(steps)
    assert (house.states, house.started_models) == (states.split(), started_models.split())


def test_a_queue_that_is_full_refuses_and_says_when_to_retry():
    waiter = House().play("mistral " * BOUND + "tiny").every[-1]
    reason = f"{BOUND} requests wait for a switch already"
    assert (words(waiter), waiter.refusal.retry_after_s) == (reason, 30)


@pytest.mark.parametrize("code", [1, 2, 4, 77])
def test_a_switch_that_failed_refuses_its_waiters_and_is_not_tried_again_for_a_minute(code):
    house = House().play(f"mistral tiny looks ends:{code}")
    first, other_waiter = house.every
    assert words(first) == "the switch to mistral failed: its last words"
    assert other_waiter.state == "waits"
    house.now += FAILED_S - 1
    again = house.comes("mistral")
    assert (words(again), again.refusal.retry_after_s) == (words(first), 1)
    house.now += 1
    assert house.comes("mistral").state == "waits"


def test_a_model_that_no_request_may_make_hot_is_refused_and_others_are_switched_to():
    house = House().play("tiny mistral")
    house.busy_models = {"tiny": "glm is hot on spark2", "qwen": "of no consequence: it is hot"}
    house.play("looks tiny")
    assert words(house.every[0]) == words(house.every[2]) == "glm is hot on spark2"
    assert house.started_models == ["mistral"]
    assert house.play("ends:1 qwen").every[-1].state == "served"


EVENTS = st.one_of(
    st.sampled_from((*NAMES, AUTO, "moving:0", "moving:1", "hot:", "hot:spare")),
    st.integers(0, 30).map("leaves:{}".format),
    st.floats(0, 200).map("looks:{}".format),
    st.sampled_from([f"ends:{code}" for code in (0, 0, 0, 1, 3, 4, 75, "141:qwen")]),
    st.sampled_from(NAMES).map("hot:{}".format),
)


@given(st.lists(EVENTS, max_size=60), st.sampled_from((0.0, 10.0, LEAST_S)), st.integers(0, 4))
@settings(max_examples=150)
def test_whatever_comes_everybody_gets_one_outcome_and_nobody_is_cut_off(events, least, longest):
    house = House(turns=FairQueue(least, longest))
    for event in events:
        # `look` itself asserts that no request runs when a switch begins.
        house.play(event)
        waiting = house.states.count("waits")
        assert waiting <= longest
        assert sum(house.turns.waiting_by_model.values()) == waiting
        for waiter in house.every:
            outcomes = house.outcomes.count(waiter)
            assert outcomes == (waiter.state in ("served", "refused")) or (
                waiter.state == "left" and outcomes <= 1
            )
        assert not (house.switching and house.running()), "it runs at what is being stopped"
    # No starvation: from here on requests end, switches go well, and everybody has an outcome.
    house.play("moving:0")
    for _ in range(4 * (longest + 3)):
        for waiter in house.running():
            house.turns.end_request(waiter)
        house.play(f"looks:{least + SETTLES_S} ends")
    house.look()
    for waiter in house.every:
        assert house.outcomes.count(waiter) == 1 or waiter.state == "left"
    assert "waits" not in house.states
