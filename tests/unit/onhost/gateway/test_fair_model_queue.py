"""The order of waiting requests, whatever comes and whatever fails."""

from __future__ import annotations

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
    TurnRefusal,
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
    #: Requests of clients of the engine's own port.
    own: int = 0
    turns: FairQueue = field(default_factory=lambda: FairQueue(LEAST_S, BOUND))
    every: list[QueuedRequest] = field(default_factory=list)
    outcomes: dict[int, int] = field(default_factory=dict)
    started_models: list[str] = field(default_factory=list)
    switching: str | None = None

    def host_view(self) -> QueueView:
        serves = {self.hot, "mistral" if self.hot == SPARE else self.hot, AUTO} if self.hot else ()
        return QueueView(frozenset(serves), self.now - self.since, 0, self.moving, self.busy_models)

    def comes(self, model: str) -> QueuedRequest:
        number = len(self.every)
        self.outcomes[number] = 0

        def count_outcome() -> None:
            self.outcomes[number] += 1

        waiter = QueuedRequest(model, "anna", count_outcome)
        self.every.append(waiter)
        self.turns.admit_or_queue(waiter, self.host_view(), self.now)
        return waiter

    def leaves(self, waiter: QueuedRequest) -> None:
        self.turns.end_request(waiter)

    def look(self, seconds: float = 0.0) -> None:
        """Do one step, as the gateway does twice a second."""
        self.now += seconds
        self.turns.settle_waiting_requests(self.host_view(), self.now)
        waiter = self.turns.next_request_to_switch_for(self.host_view())
        if waiter and not self.own:
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


def words(waiter: QueuedRequest) -> str:
    assert isinstance(waiter.refusal, TurnRefusal)
    assert waiter.state == "refused"
    return waiter.refusal.words


def test_what_is_hot_passes_at_once():
    house = House()
    assert [house.comes("qwen").state for _ in range(100)] == ["served"] * 100


def test_a_cold_model_is_switched_to_and_everybody_who_waits_for_it_passes():
    house = House()
    waiting = [house.comes("mistral") for _ in range(3)]
    house.look()
    assert house.started_models == ["mistral"]
    assert house.comes("mistral").state == "waits"
    house.ends()
    house.look()
    assert {waiter.state for waiter in [*waiting, house.every[-1]]} == {"served"}


@pytest.mark.parametrize(
    "house_fields",
    [{}, {"own": 1}, {"moving": "ben is switching to tiny"}],
    ids=["a request runs", "a client of the engine's own port runs", "somebody else switches"],
)
def test_nothing_is_switched_while(house_fields):
    house = House(**house_fields)
    running = None if house_fields else house.comes("qwen")
    house.comes("mistral")
    house.look(3600)
    assert house.started_models == []
    if running:
        house.leaves(running)
    house.own, house.moving = 0, ""
    house.look()
    assert house.started_models == ["mistral"]


def test_what_is_hot_has_its_least_time():
    house = House(since=1000.0)
    house.comes("mistral")
    house.look(LEAST_S - 1)
    assert house.started_models == []
    house.look(1)
    assert house.started_models == ["mistral"]


def test_where_nothing_is_hot_nothing_is_waited_for():
    house = House(hot=None, since=1000.0)
    house.comes("mistral")
    house.look()
    assert house.started_models == ["mistral"]


def test_who_waits_is_not_starved_by_requests_for_what_is_hot():
    house = House(since=1000.0)
    first = house.comes("qwen")
    house.comes("mistral")
    within = house.comes("qwen")
    assert within.state == "served", "its least time is not over"
    house.look(LEAST_S)
    behind = house.comes("qwen")
    assert behind.state == "waits"
    for waiter in (first, within):
        house.leaves(waiter)
    house.look()
    house.ends()
    house.look()
    assert (house.started_models, behind.state) == (["mistral"], "waits")
    house.leaves(house.every[1])
    house.look(LEAST_S)
    assert house.started_models == ["mistral", "qwen"]
    house.ends()
    house.look()
    assert behind.state == "served"


def test_who_came_behind_another_model_shares_the_switch_all_the_same():
    house = House()
    house.turns = FairQueue(0.0, BOUND)
    first, other_waiter, late = (house.comes(name) for name in ("mistral", "tiny", "mistral"))
    house.look()
    house.ends()
    house.look()
    assert [first.state, other_waiter.state, late.state] == ["served", "waits", "served"]


def test_models_are_switched_to_in_the_order_of_their_first_request():
    house = House()
    for name in ("tiny", "mistral", "tiny"):
        house.comes(name)
    house.look()
    house.ends()
    house.look()
    for waiter in house.running():
        house.leaves(waiter)
    house.look(LEAST_S)
    assert house.started_models == ["tiny", "mistral"]


def test_whatever_is_hot_is_never_switched_for():
    house = House()
    house.comes("mistral")
    auto = house.comes(AUTO)
    assert auto.state == "waits"
    house.look()
    house.ends()
    house.look(LEAST_S)
    assert (house.started_models, auto.state) == (["mistral"], "served")


def test_whatever_is_hot_is_refused_where_nothing_is_and_nothing_comes():
    house = House(hot=None)
    house.comes("mistral")
    auto = house.comes(AUTO)
    house.look()
    house.ends(4)
    house.look()
    assert words(auto) == "no model is hot"


def test_the_queue_has_a_bound():
    house = House()
    for _ in range(BOUND):
        house.comes("mistral")
    late = house.comes("tiny")
    assert words(late) == f"{BOUND} requests wait for a switch already"
    assert late.refusal.retry_after_s == 30


def test_a_switch_that_failed_refuses_its_waiters_and_is_not_tried_again_for_a_minute():
    house = House()
    first, other_waiter = house.comes("mistral"), house.comes("tiny")
    house.look()
    house.ends(1)
    assert words(first) == "the switch to mistral failed: its last words"
    assert other_waiter.state == "waits"
    house.now += FAILED_S - 1
    again = house.comes("mistral")
    assert (words(again), again.refusal.retry_after_s) == (words(first), 1)
    house.now += 1
    assert house.comes("mistral").state == "waits"


def test_a_model_that_failed_passes_where_somebody_made_it_hot():
    house = House()
    house.comes("mistral")
    house.look()
    house.ends(1)
    house.hot = "mistral"
    assert house.comes("mistral").state == "served"


def test_the_fallback_answers_for_its_model():
    house = House()
    waiter = house.comes("mistral")
    house.look()
    house.ends(3)
    house.look()
    assert (house.hot, waiter.state) == (SPARE, "served")


def test_another_operator_who_was_first_is_no_failure():
    house = House()
    waiter = house.comes("mistral")
    house.look()
    house.moving = "ben is switching to tiny"
    house.ends(75)
    house.look(1)
    assert (waiter.state, house.started_models) == ("waits", ["mistral"])
    house.moving = ""
    house.look(1)
    assert house.started_models == ["mistral", "mistral"]


def test_after_a_lost_display_what_is_hot_decides():
    house = House()
    waiter = house.comes("mistral")
    house.look()
    house.moving = "anna is switching to mistral"
    house.ends(141, hot="qwen")
    house.look(SETTLES_S * 5)
    assert waiter.state == "waits"
    house.hot, house.moving = "mistral", ""
    house.look()
    assert (waiter.state, house.started_models) == ("served", ["mistral"])


def test_a_switch_that_says_it_went_well_and_did_not_is_not_tried_for_ever():
    house = House()
    waiter = house.comes("mistral")
    house.look()
    house.ends(0, hot="qwen")
    house.look(SETTLES_S - 1)
    assert (waiter.state, house.started_models) == ("waits", ["mistral"])
    house.look(1)
    assert words(waiter).startswith("the switch to mistral has ended, but it is not hot")
    assert house.comes("mistral").state == "refused"


def test_the_last_who_leaves_before_the_switch_began_cancels_it():
    house = House(since=1000.0)
    waiters = [house.comes("mistral"), house.comes("mistral")]
    for waiter in waiters:
        house.leaves(waiter)
    house.look(LEAST_S)
    assert house.started_models == []
    assert house.turns.has_no_waiter_or_switch


def test_nobody_passes_to_an_engine_that_is_being_stopped():
    house = House()
    first = house.comes("mistral")
    house.look()
    house.leaves(first)
    late = house.comes("qwen")
    house.look()
    assert late.state == "waits"
    house.ends(1)
    house.look()
    assert late.state == "served"


def test_what_a_clusters_first_member_answers_for_is_not_taken_away():
    house = House()
    earlier_waiter = house.comes("mistral")
    house.busy_models = {name: "glm is hot here: switch there" for name in NAMES}
    house.look()
    assert words(earlier_waiter) == words(house.comes("tiny")) == "glm is hot here: switch there"
    assert house.comes("qwen").state == "served"


def test_one_model_may_be_refused_alone():
    house = House(busy_models={"tiny": "mistral is hot on spark2"})
    assert words(house.comes("tiny")) == "mistral is hot on spark2"
    house.comes("mistral")
    house.look()
    assert house.started_models == ["mistral"]


EVENTS = st.one_of(
    st.tuples(st.just("comes"), st.sampled_from((*NAMES, AUTO))),
    st.tuples(st.just("leaves"), st.integers(0, 30)),
    st.tuples(st.just("look"), st.floats(0, 200)),
    st.tuples(st.just("ends"), st.sampled_from((0, 0, 0, 1, 3, 4, 75, 141))),
    st.tuples(st.just("human"), st.sampled_from((*NAMES, SPARE, None))),
    st.tuples(st.just("own"), st.integers(0, 1)),
    st.tuples(st.just("moving"), st.booleans()),
)


@given(st.lists(EVENTS, max_size=60), st.sampled_from((0.0, 10.0, LEAST_S)), st.integers(0, 4))
@settings(max_examples=150)
def test_whatever_comes_everybody_gets_one_outcome_and_nobody_is_cut_off(
    events, least, longest_queue
):
    house = House()
    house.turns = FairQueue(least, longest_queue)
    for action, value in events:
        if action == "comes":
            house.comes(value)
        elif action == "leaves" and value < len(house.every):
            if house.every[value].state in ("waits", "served"):
                house.leaves(house.every[value])
        elif action == "look":
            # `look` itself asserts that no request runs when a switch begins.
            house.look(value)
        elif action == "ends" and house.switching:
            house.ends(value, "qwen" if value == 141 else None)
        elif action == "human" and not house.switching:
            house.hot, house.since = value, house.now
        elif action == "own":
            house.own = value
        elif action == "moving":
            house.moving = "ben is switching" if value else ""
        waiting = [waiter for waiter in house.every if waiter.state == "waits"]
        assert len(waiting) <= longest_queue
        assert sum(house.turns.waiting_by_model.values()) == len(waiting)
        for number, waiter in enumerate(house.every):
            assert house.outcomes[number] == (waiter.state in ("served", "refused")) or (
                waiter.state == "left" and house.outcomes[number] <= 1
            )
        assert not (house.switching and house.running()), "it runs at what is being stopped"
    # No starvation: from here on requests end, switches go well, and everybody has an outcome.
    house.moving, house.own = "", 0
    for _ in range(4 * (longest_queue + 3)):
        for waiter in house.running():
            house.leaves(waiter)
        house.look(least + SETTLES_S)
        if house.switching:
            house.ends()
    house.look()
    assert not [waiter for waiter in house.every if waiter.state == "waits"]
    for number, waiter in enumerate(house.every):
        assert house.outcomes[number] == 1 or waiter.state == "left"


@pytest.mark.parametrize("code", [1, 2, 4, 77])
def test_every_other_end_of_a_switch_is_a_failure(code):
    house = House()
    waiter = house.comes("mistral")
    house.look()
    house.ends(code)
    assert words(waiter) == "the switch to mistral failed: its last words"


def test_who_can_no_longer_be_looked_after_is_refused():
    house = House()
    waiter = house.comes("mistral")
    house.turns.refuse_all_waiting("nobody looks")
    assert words(waiter) == "nobody looks"
    assert house.turns.has_no_waiter_or_switch
