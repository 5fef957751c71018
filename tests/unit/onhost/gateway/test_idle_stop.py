"""A model that nobody asks is let go, and one that somebody asks stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from a_switching_spark import SwitchingSpark
from hypothesis import given
from hypothesis import strategies as st

from lockstep.onhost.core import config
from lockstep.onhost.gateway import switch_client
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.idle_stop import IdleState, IdleStop, IdleTime
from lockstep.onhost.gateway.switch_queue import SwitchQueue
from lockstep.onhost.records import watch_findings

QUIET = IdleState("qwen", since=100.0, counters={"tokens": 5.0})


def idle(*looks: IdleState, every_s: float = 10.0) -> float:
    """The seconds of rest at the last of these readings."""
    idle_clock, idle_s = IdleTime(), 0.0
    for number, look in enumerate(looks):
        idle_s = idle_clock.idle_seconds(look, 1000.0 + number * every_s)
    return idle_s


def test_time_passes_while_nobody_asks():
    assert idle(QUIET, QUIET, QUIET) == 20


@pytest.mark.parametrize(
    "busy",
    [
        replace(QUIET, running=1),
        replace(QUIET, outstanding=1),
        replace(QUIET, outstanding=None),
        replace(QUIET, last_asked=1010.0),
    ],
)
def test_a_request_begins_the_time_anew(busy):
    assert idle(QUIET, busy, QUIET) == 10


def test_a_request_of_the_engines_own_port_that_came_and_went_begins_it_anew():
    later_look = replace(QUIET, counters={"tokens": 9.0})
    assert idle(QUIET, later_look, later_look) == 10


def test_a_request_that_ended_between_two_looks_counts_from_its_end():
    assert idle(QUIET, replace(QUIET, last_asked=1004.0)) == 6


def test_a_fresh_switch_begins_it_anew():
    assert idle(QUIET, replace(QUIET, since=1005.0), replace(QUIET, since=1005.0)) == 10
    assert idle(QUIET, replace(QUIET, hot="mistral"), replace(QUIET, hot="mistral")) == 10


def test_nothing_hot_rests_for_no_time():
    assert idle(IdleState(None), IdleState(None)) == 0


def test_what_the_wedge_watch_asks_is_no_request():
    watch_look = replace(QUIET, outstanding=1, is_watched=True)
    answer_look = replace(QUIET, counters={"tokens": 6.0}, is_watched=True)
    assert idle(QUIET, watch_look, answer_look, replace(answer_look, is_watched=False)) == 30


def test_who_asks_through_the_gateway_counts_while_the_watch_looks():
    assert idle(QUIET, replace(QUIET, running=1, is_watched=True)) == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 100)), min_size=1))
def test_it_never_rests_longer_than_since_the_last_sign_of_a_request(looks):
    idle_clock, now, last = IdleTime(), 1000.0, 1000.0
    idle_clock.idle_seconds(QUIET, now)
    for busy, seconds in looks:
        now += seconds
        last = now if busy else last
        assert idle_clock.idle_seconds(replace(QUIET, running=int(busy)), now) == pytest.approx(
            now - last
        )


@pytest.fixture
def spark(spark):
    spark.engine.metrics = page(1.0)
    return spark


def page(tokens: float) -> str:
    return f"vllm:num_requests_running 0.0\nvllm:generation_tokens_total {tokens}\n"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def resting(spark: SwitchingSpark, clock: Clock) -> IdleStop:
    host = config.load_host(spark.paths.models)
    hot = HotModel(host, spark.paths)
    swaps = SwitchQueue(
        hot,
        host,
        GatewayConfiguration("spark1", ()),
        spark.paths,
        switch=lambda model, person: switch_client.request_switch(model, person, spark.socket),
    )
    return IdleStop(hot, host, swaps, 60.0, spark.paths, clock)


def test_a_model_without_requests_is_let_go_by_an_ordinary_switch(spark, capsys):
    async def story() -> None:
        clock = Clock()
        idle_switch = resting(spark, clock)
        await idle_switch.stop_idle_model()
        clock.now += 59
        await idle_switch.stop_idle_model()
        assert spark.hot == ["mistral"]
        clock.now += 1
        await idle_switch.stop_idle_model()

    asyncio.run(story())
    assert spark.hot == []
    assert any(call.endswith("--worker none the gateway") for call in spark.systemd.calls)
    message = "lockstep gateway: mistral had no request for 60 s: no model is hot"
    assert message in capsys.readouterr().out


def test_the_watchs_own_token_is_told_apart(spark):
    """By the watch's record, which it writes before it asks."""

    async def story(asked_at: float) -> list[str]:
        clock = Clock()
        idle_switch = resting(spark, clock)
        await idle_switch.stop_idle_model()
        clock.now += 59
        watch_findings.save(spark.paths, watch_findings.WedgeRecord(asked_at=asked_at))
        spark.engine.metrics = page(2.0 + asked_at)
        await idle_switch.stop_idle_model()
        clock.now += 30
        await idle_switch.stop_idle_model()
        return spark.hot

    assert asyncio.run(story(0.0)) == ["mistral"]
    assert asyncio.run(story(1055.0)) == []


def test_a_rank_that_answers_nobody_is_left_to_its_first_member(spark):
    spark.tell("mistral", engine_url=None, url="")

    async def story() -> None:
        clock = Clock()
        idle_switch = resting(spark, clock)
        for _ in range(3):
            await idle_switch.stop_idle_model()
            clock.now += 100

    asyncio.run(story())
    assert spark.hot == ["mistral"]
