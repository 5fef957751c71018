"""Requests that wait for their model: what is looked at, and what comes of a switch."""

import asyncio
import subprocess
import time
from typing import Any, NamedTuple

import pytest
from a_model_host import UP
from a_switching_spark import UNITS, SwitchingSpark
from event_loop import in_event_loop

from lockstep.onhost.core import config, runner, switch_lock
from lockstep.onhost.gateway import switch_client
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.switch_queue import SwitchQueue, TurnRefusal

PAGE = 'vllm:num_requests_running{{x="0"}} {running}\nvllm:generation_tokens_total 1.0\n'


class GatewayPart:
    """The gateway's part: the hot model, and incoming requests."""

    def __init__(self, spark: SwitchingSpark, least_hot_s: float = 0.0, peers: object = None):
        host = config.load_host(spark.paths.models)
        self.hot = HotModel(host, spark.paths)
        self.switch_models: list[str] = []

        async def switch(model: str, person: str | None):
            self.switch_models.append(model)
            async for message in switch_client.request_switch(model, person, spark.socket):
                yield message

        gateway = GatewayConfiguration("spark1", (), swap_on_request=True, least_hot_s=least_hot_s)
        self.swaps = SwitchQueue(self.hot, host, gateway, spark.paths, peers, switch)

    async def wait_for_looks(self) -> None:
        """Wait until somebody waits, and waiting requests were looked at three times more."""
        look, looks = self.hot.refresh_unit_states, []

        async def count_look() -> None:
            looks.append(1)
            await look()

        await until(lambda: self.swaps.waiting_by_model)
        self.hot.refresh_unit_states = count_look
        await until(lambda: len(looks) > 3)
        self.hot.refresh_unit_states = look

    async def request(self, model: str, may_answer: asyncio.Event | None = None) -> str:
        """The answer to a request, which takes until `may_answer`."""
        try:
            async with self.swaps.hold_hot_model(model, "anna"):
                by = self.hot.serving_variant(model)
                assert by is not None
                with self.hot.count_running_request(by.name):
                    if may_answer:
                        await may_answer.wait()
                    return by.name
        except TurnRefusal as error:
            return error.words

    def begin(self, model: str, may_answer: asyncio.Event | None = None) -> asyncio.Task[str]:
        return asyncio.create_task(self.request(model, may_answer))


async def a_gateway(spark: SwitchingSpark, **more: Any) -> GatewayPart:
    """A gateway that knows what is hot."""
    gateway = GatewayPart(spark, **more)
    await gateway.hot.refresh_unit_states()
    return gateway


async def until(true) -> None:
    while not true():
        await asyncio.sleep(0.01)


@in_event_loop
async def test_a_cold_model_is_switched_to_once_nothing_runs(spark):
    gateway, may_answer = await a_gateway(spark), asyncio.Event()
    running, cold = gateway.begin("mistral", may_answer), gateway.begin("qwen")
    await gateway.wait_for_looks()
    assert (gateway.switch_models, spark.hot) == ([], ["mistral"])
    may_answer.set()
    assert (await running, await cold) == ("mistral", "qwen")
    assert (gateway.switch_models, spark.hot) == (["qwen"], ["qwen"])
    assert any(call.endswith("--worker qwen anna, by the gateway") for call in spark.systemd.calls)


@in_event_loop
async def test_a_client_of_the_engines_own_port_is_not_cut_off(spark):
    spark.engine.metrics = PAGE.format(running=1.0)
    gateway = await a_gateway(spark)
    cold = gateway.begin("qwen")
    await until(lambda: spark.engine.looks > 3)
    assert (gateway.switch_models, spark.hot) == ([], ["mistral"])
    spark.engine.metrics = PAGE.format(running=0.0)
    assert await cold == "qwen"


@in_event_loop
async def test_somebody_elses_switch_is_waited_for(spark):
    gateway = await a_gateway(spark)
    with switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"):
        cold = gateway.begin("qwen")
        await gateway.wait_for_looks()
        assert gateway.switch_models == []
    assert await cold == "qwen"


@in_event_loop
async def test_who_hangs_up_before_the_switch_leaves_nothing_behind(spark):
    since_us = str(int(time.monotonic() * 1e6))
    spark.systemd.unit(UNITS["mistral"], **UP, StateChangeTimestampMonotonic=since_us)
    gateway = await a_gateway(spark, least_hot_s=3600)
    cold = gateway.begin("qwen")
    await until(lambda: gateway.swaps.waiting_by_model == {"qwen": 1})
    cold.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cold
    assert gateway.swaps.waiting_by_model == {}
    assert await gateway.request("mistral") == "mistral"
    assert gateway.switch_models == []


@in_event_loop
async def test_while_systemd_does_not_answer_nothing_is_switched(spark, monkeypatch):
    gateway = GatewayPart(spark)
    result = subprocess.CompletedProcess([], 1, "", "")
    monkeypatch.setattr(runner, "run", lambda *_, **__: result)
    cold = gateway.begin("qwen")
    await gateway.wait_for_looks()
    assert gateway.switch_models == []
    cold.cancel()


@in_event_loop
async def test_a_fault_of_the_gateway_itself_leaves_nobody_waiting(spark, capsys):
    async def look() -> None:
        raise ZeroDivisionError("of the test")

    gateway = await a_gateway(spark)
    gateway.hot.refresh_unit_states = look
    refusal = await gateway.request("qwen")
    assert refusal.startswith("the gateway could not find out what is hot")
    assert "ZeroDivisionError: of the test" in capsys.readouterr().out


@in_event_loop
async def test_who_comes_while_a_model_is_let_go_is_not_cut_off(spark):
    gateway = await a_gateway(spark)
    going = asyncio.create_task(gateway.swaps.stop_unused_model())
    await until(lambda: gateway.switch_models)
    assert await gateway.request("mistral") == "mistral"
    assert await going == "no model is hot"
    assert gateway.switch_models == ["none", "mistral"]


@in_event_loop
async def test_what_is_used_is_not_let_go(spark):
    gateway, may_answer = await a_gateway(spark), asyncio.Event()
    running = gateway.begin("mistral", may_answer)
    await until(lambda: gateway.hot.running_requests("mistral"))
    assert not await gateway.swaps.stop_unused_model()
    may_answer.set()
    await running
    spark.engine.metrics = PAGE.format(running=1.0)
    assert not await gateway.swaps.stop_unused_model()
    spark.engine.metrics = PAGE.format(running=0.0)
    with switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"):
        assert not await gateway.swaps.stop_unused_model()
    assert (gateway.switch_models, spark.hot) == ([], ["mistral"])


class StandInPeers(NamedTuple):
    """The other gateways, with what is hot at each of them."""

    hot: dict[str, str | None]

    async def hot_model_by_peer(self) -> dict[str, str | None]:
        return self.hot


#: As far as a host without certificates comes.
SWITCHED = "the switch to qwen failed: certificate among Sparks"
UNKNOWN = "the gateway of spark2 does not say what is hot there"


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        (StandInPeers({"spark2": ""}), SWITCHED),
        (StandInPeers({"spark2": "tiny"}), "tiny is hot on spark2, which pair needs: switch by"),
        (StandInPeers({"spark2": None}), UNKNOWN),
        (None, UNKNOWN),
    ],
)
@in_event_loop
async def test_no_request_takes_a_model_of_another_member_away(spark, peers, words):
    spark.join_cluster("qwen")
    gateway = await a_gateway(spark, peers=peers)
    assert (await gateway.request("qwen")).startswith(words)
    assert gateway.switch_models == (["qwen"] if words == SWITCHED else [])


@in_event_loop
async def test_a_rank_that_runs_here_is_not_taken_away(spark):
    spark.join_cluster("mistral", rank=1)
    gateway = await a_gateway(spark)
    words = "mistral is hot here, and spark1 answers for it: switch there"
    assert (await gateway.request("qwen"), gateway.switch_models) == (words, [])


@pytest.mark.parametrize("answer_bytes", [b"", b"no JSON\n", b'{"phase": "stop", "line": "x"}\n'])
@in_event_loop
async def test_an_answer_without_an_end_says_that_the_end_is_not_known(tmp_path, answer_bytes):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer_bytes)
        writer.close()

    async with await asyncio.start_unix_server(answer, path := tmp_path / "odd.sock"):
        messages = [line async for line in switch_client.request_switch("qwen", "anna", path)]
    assert messages[-1]["code"] == 141
