"""Requests that wait for their model: what is looked at, and what comes of a switch."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time

import pytest
from a_switching_spark import UNITS, SwitchingSpark

from lockstep.onhost.core import config, runner, switch_lock
from lockstep.onhost.gateway import switch_client
from lockstep.onhost.gateway.configuration import GatewayConfiguration
from lockstep.onhost.gateway.hot_model import HotModel
from lockstep.onhost.gateway.switch_queue import SwitchQueue, TurnRefusal

PAGE = 'vllm:num_requests_running{{x="0"}} {running}\nvllm:generation_tokens_total 1.0\n'


class GatewayPart:
    """The gateway's part: the hot model, and incoming requests."""

    def __init__(
        self, spark: SwitchingSpark, least_hot_s: float = 0.0, peers: object = None
    ) -> None:
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
        """Wait until waiting requests were looked at three times more."""
        look, looks = self.hot.refresh_unit_states, 0

        async def count_look() -> None:
            nonlocal looks
            looks += 1
            await look()

        self.hot.refresh_unit_states = count_look
        await until(lambda: looks > 3)
        self.hot.refresh_unit_states = look

    async def request(self, model: str, may_answer: asyncio.Event | None = None) -> str:
        """The answer to a request, which takes until `answered`."""
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


def run(coroutine):
    async def run_within_limit():
        async with asyncio.timeout(180):
            return await coroutine

    return asyncio.run(run_within_limit())


async def until(true) -> None:
    while not true():
        await asyncio.sleep(0.01)


def test_a_cold_model_is_switched_to_and_answers(spark):
    async def two() -> list[str]:
        gateway_part = GatewayPart(spark)
        await gateway_part.hot.refresh_unit_states()
        serving_models = await asyncio.gather(
            gateway_part.request("qwen"), gateway_part.request("qwen")
        )
        return [*serving_models, *gateway_part.switch_models]

    assert run(two()) == ["qwen", "qwen", "qwen"]
    assert spark.hot == ["qwen"]
    assert any(call.endswith("--worker qwen anna, by the gateway") for call in spark.systemd.calls)


def test_what_runs_is_not_cut_off(spark):
    async def story() -> None:
        gateway_part, may_answer = GatewayPart(spark), asyncio.Event()
        await gateway_part.hot.refresh_unit_states()
        running = asyncio.create_task(gateway_part.request("mistral", may_answer))
        cold = asyncio.create_task(gateway_part.request("qwen"))
        await until(lambda: gateway_part.swaps.waiting_by_model)
        await gateway_part.wait_for_looks()
        assert (gateway_part.switch_models, spark.hot) == ([], ["mistral"])
        may_answer.set()
        assert await running == "mistral"
        assert await cold == "qwen"

    run(story())


def test_a_client_of_the_engines_own_port_is_not_cut_off(spark):
    async def story() -> None:
        gateway_part = GatewayPart(spark)
        spark.engine.metrics = PAGE.format(running=1.0)
        await gateway_part.hot.refresh_unit_states()
        cold = asyncio.create_task(gateway_part.request("qwen"))
        await until(lambda: spark.engine.looks > 3)
        assert (gateway_part.switch_models, spark.hot) == ([], ["mistral"])
        spark.engine.metrics = PAGE.format(running=0.0)
        assert await cold == "qwen"

    run(story())


def test_the_switchs_own_reason_reaches_who_waits(spark):
    spark.tell("qwen", memory_gib=500.0)

    async def story() -> str:
        gateway_part = GatewayPart(spark)
        await gateway_part.hot.refresh_unit_states()
        return await gateway_part.request("qwen")

    refusal = run(story())
    assert refusal.startswith("the switch to qwen failed: qwen needs 500.0 GiB")
    assert spark.hot == ["mistral"]


def test_somebody_elses_switch_is_waited_for(spark):
    async def story() -> None:
        gateway_part = GatewayPart(spark)
        with switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"):
            cold = asyncio.create_task(gateway_part.request("qwen"))
            await until(lambda: gateway_part.swaps.waiting_by_model)
            await gateway_part.wait_for_looks()
            assert gateway_part.switch_models == []
        assert await cold == "qwen"

    run(story())


def test_who_hangs_up_before_the_switch_leaves_nothing_behind(spark):
    async def story() -> None:
        gateway_part = GatewayPart(spark, least_hot_s=3600)
        change_time_us = int(time.monotonic() * 1e6)
        spark.systemd.unit(
            UNITS["mistral"],
            ActiveState="active",
            SubState="running",
            StateChangeTimestampMonotonic=str(change_time_us),
        )
        cold = asyncio.create_task(gateway_part.request("qwen"))
        await until(lambda: gateway_part.swaps.waiting_by_model == {"qwen": 1})
        cold.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cold
        assert gateway_part.swaps.waiting_by_model == {}
        assert await gateway_part.request("mistral") == "mistral"
        assert gateway_part.switch_models == []

    run(story())


def test_while_systemd_does_not_answer_nothing_is_switched(spark, monkeypatch):
    async def story() -> None:
        gateway_part = GatewayPart(spark)
        result = subprocess.CompletedProcess([], 1, "", "")
        monkeypatch.setattr(runner, "run", lambda *_, **__: result)
        cold = asyncio.create_task(gateway_part.request("qwen"))
        await until(lambda: gateway_part.swaps.waiting_by_model)
        await gateway_part.wait_for_looks()
        assert gateway_part.switch_models == []
        cold.cancel()

    run(story())


def test_a_fault_of_the_gateway_itself_leaves_nobody_waiting(spark, capsys):
    async def story() -> str:
        gateway_part = GatewayPart(spark)

        async def look() -> None:
            raise ZeroDivisionError("of the test")

        gateway_part.hot.refresh_unit_states = look
        return await gateway_part.request("qwen")

    assert run(story()).startswith("the gateway could not find out what is hot")
    assert "ZeroDivisionError: of the test" in capsys.readouterr().out


def test_who_comes_while_a_model_is_let_go_is_not_cut_off(spark):
    async def story() -> list[str]:
        gateway_part = GatewayPart(spark)
        going = asyncio.create_task(gateway_part.swaps.stop_unused_model())
        await until(lambda: gateway_part.switch_models)
        late = await gateway_part.request("mistral")
        assert await going == "no model is hot"
        return [late, *gateway_part.switch_models]

    assert run(story()) == ["mistral", "none", "mistral"]


def test_what_is_used_is_not_let_go(spark):
    async def story() -> None:
        gateway_part, may_answer = GatewayPart(spark), asyncio.Event()
        await gateway_part.hot.refresh_unit_states()
        running = asyncio.create_task(gateway_part.request("mistral", may_answer))
        await until(lambda: gateway_part.hot.running_requests("mistral"))
        assert not await gateway_part.swaps.stop_unused_model()
        may_answer.set()
        await running
        spark.engine.metrics = PAGE.format(running=1.0)
        assert not await gateway_part.swaps.stop_unused_model()
        with switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"):
            assert not await gateway_part.swaps.stop_unused_model()
        assert (gateway_part.switch_models, spark.hot) == ([], ["mistral"])

    run(story())


def in_a_cluster(spark: SwitchingSpark, name: str, rank: int) -> None:
    """Have a model run on this host and on spark2."""
    spark.tell(name, cluster="pair")
    data = json.loads(spark.paths.models.read_text())
    members = [{"name": f"spark{number}", "address": f"127.0.1.{number}"} for number in (1, 2)]
    pair = {"name": "pair", "rank": rank, "port": 1, "members": members}
    spark.paths.models.write_text(json.dumps({**data, "clusters": {"pair": pair}}))


class StandInPeers:
    """The other gateways; what is hot at each of them, as `Peers.hot` tells it."""

    def __init__(self, **hot: str | None) -> None:
        self._hot = hot

    async def hot_model_by_peer(self) -> dict[str, str | None]:
        return self._hot


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        (StandInPeers(spark2="tiny"), "tiny is hot on spark2, which pair needs: switch by hand"),
        (StandInPeers(spark2=None), "the gateway of spark2 does not say what is hot there"),
        (StandInPeers(spark3=""), "the gateway of spark2 does not say what is hot there"),
        (None, "the gateway of spark2 does not say what is hot there"),
    ],
)
def test_no_request_takes_a_model_of_another_member_away(spark, peers, words):
    in_a_cluster(spark, "qwen", rank=0)

    async def story() -> list[str]:
        gateway_part = GatewayPart(spark, peers=peers)
        await gateway_part.hot.refresh_unit_states()
        return [await gateway_part.request("qwen"), *gateway_part.switch_models]

    assert run(story()) == [words]


def test_where_no_member_has_a_model_the_cluster_is_switched(spark):
    in_a_cluster(spark, "qwen", rank=0)

    async def story() -> list[str]:
        gateway_part = GatewayPart(spark, peers=StandInPeers(spark2=""))
        await gateway_part.hot.refresh_unit_states()
        await gateway_part.request("qwen")
        return gateway_part.switch_models

    assert run(story()) == ["qwen"]


def test_a_rank_that_runs_here_is_not_taken_away(spark):
    in_a_cluster(spark, "mistral", rank=1)

    async def story() -> list[str]:
        gateway_part = GatewayPart(spark)
        await gateway_part.hot.refresh_unit_states()
        return [await gateway_part.request("qwen"), *gateway_part.switch_models]

    assert run(story()) == ["mistral is hot here, and spark1 answers for it: switch there"]
