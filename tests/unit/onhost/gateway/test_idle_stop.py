"""A model that nobody asks is let go, and one that somebody asks stays."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from a_switching_spark import SwitchingSpark

from lockstep.onhost.core import config
from lockstep.onhost.gateway import switch_client
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.idle_stop import IdleState, IdleStop, IdleTime
from lockstep.onhost.gateway.switch_queue import SwitchQueue
from lockstep.onhost.records import watch_findings

PAGE = "vllm:num_requests_running 0.0\nvllm:generation_tokens_total {}\n"
QUIET = IdleState("qwen", since=100.0, counters={"tokens": 5.0})
USED = replace(QUIET, counters={"tokens": 9.0})
FRESH, OTHER = replace(QUIET, since=1005.0), replace(QUIET, hot="mistral")
WATCHED = replace(QUIET, outstanding=1, is_watched=True)
ANSWERED = replace(QUIET, counters={"tokens": 6.0}, is_watched=True)


@pytest.mark.parametrize(
    ("looks", "idle_s"),
    [
        ([QUIET, QUIET, QUIET], 20),
        ([QUIET, replace(QUIET, running=1), QUIET], 10),
        ([QUIET, replace(QUIET, outstanding=1), QUIET], 10),
        ([QUIET, replace(QUIET, outstanding=None), QUIET], 10),
        ([QUIET, replace(QUIET, last_asked=1010.0), QUIET], 10),
        # A request of the engine's own port that came and went.
        ([QUIET, USED, USED], 10),
        # One that ended between two looks.
        ([QUIET, replace(QUIET, last_asked=1004.0)], 6),
        # A switch.
        ([QUIET, FRESH, FRESH], 10),
        ([QUIET, OTHER, OTHER], 10),
        ([IdleState(None), IdleState(None)], 0),
        # What the wedge watch asks is no request, and who asks meanwhile counts.
        ([QUIET, WATCHED, ANSWERED, replace(ANSWERED, is_watched=False)], 30),
        ([QUIET, replace(QUIET, running=1, is_watched=True)], 0),
    ],
)
def test_time_passes_while_nobody_asks(looks, idle_s):
    """The looks are ten seconds apart."""
    idle_clock = IdleTime()
    times = [idle_clock.idle_seconds(look, 1000.0 + 10 * n) for n, look in enumerate(looks)]
    assert times[-1] == idle_s


def idle_seconds_pass(spark: SwitchingSpark, *steps: tuple[float, Callable[[], object]]) -> None:
    """Look once, and once more after each step's seconds and its deed."""
    now, spark.engine.metrics = 1000.0, PAGE.format(1)
    host = config.load_host(spark.paths.models)
    hot, gateway = HotModel(host, spark.paths), GatewayConfiguration("spark1", ())
    switch = partial(switch_client.request_switch, path=spark.socket)
    swaps = SwitchQueue(hot, host, gateway, spark.paths, switch=switch)
    idle_stop = IdleStop(hot, host, swaps, 60.0, spark.paths, lambda: now)

    async def look() -> None:
        nonlocal now
        await idle_stop.stop_idle_model()
        for seconds, deed in steps:
            now += seconds
            deed()
            await idle_stop.stop_idle_model()

    asyncio.run(look())


def test_a_model_without_requests_is_let_go_by_an_ordinary_switch(spark, capsys):
    hot_models = []
    idle_seconds_pass(spark, (59, lambda: None), (1, lambda: hot_models.extend(spark.hot)))
    assert (hot_models, spark.hot) == (["mistral"], [])
    assert any(call.endswith("--worker none the gateway") for call in spark.systemd.calls)
    message = "lockstep gateway: mistral had no request for 60 s: no model is hot"
    assert message in capsys.readouterr().out


@pytest.mark.parametrize(("asked_at", "hot"), [(0.0, ["mistral"]), (1055.0, [])])
def test_the_watchs_own_token_is_told_apart(spark, asked_at, hot):
    """By the watch's record, which it writes before it asks."""

    def watch() -> None:
        watch_findings.save(spark.paths, watch_findings.WedgeRecord(asked_at=asked_at))
        spark.engine.metrics = PAGE.format(2)

    idle_seconds_pass(spark, (59, watch), (30, lambda: None))
    assert spark.hot == hot


def test_a_rank_that_answers_nobody_is_left_to_its_first_member(spark):
    spark.tell("mistral", engine_url=None, url="")
    idle_seconds_pass(spark, (100, lambda: None), (100, lambda: None))
    assert spark.hot == ["mistral"]
