"""Requests that wait for their model: what is looked at, and what comes of a switch."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time

import pytest
from a_switching_spark import UNITS, SwitchingSpark

from lockstep.onhost.core import config, runner, switch_lock
from lockstep.onhost.gateway import ask
from lockstep.onhost.gateway.configuration import Gateway
from lockstep.onhost.gateway.hot import Hot
from lockstep.onhost.gateway.swap import Refused, Swaps

PAGE = 'vllm:num_requests_running{{x="0"}} {running}\nvllm:generation_tokens_total 1.0\n'


class Door:
    """The gateway's part: what is hot, and requests that come."""

    def __init__(
        self, spark: SwitchingSpark, least_hot_s: float = 0.0, peers: object = None
    ) -> None:
        host = config.load_host(spark.paths.targets)
        self.hot = Hot(host, spark.paths)
        self.asked: list[str] = []

        async def switch(target: str, person: str | None):
            self.asked.append(target)
            async for message in ask.switch(target, person, spark.socket):
                yield message

        gateway = Gateway("spark1", (), swap_on_request=True, least_hot_s=least_hot_s)
        self.swaps = Swaps(self.hot, host, gateway, spark.paths, peers, switch)

    async def looked(self) -> None:
        """Wait until who waits was thought of three times more."""
        look, looks = self.hot.look, 0

        async def counted() -> None:
            nonlocal looks
            looks += 1
            await look()

        self.hot.look = counted
        await until(lambda: looks > 3)
        self.hot.look = look

    async def request(self, target: str, answered: asyncio.Event | None = None) -> str:
        """What answers a request, which takes until `answered`."""
        try:
            async with self.swaps.until_hot(target, "anna"):
                by = self.hot.serves(target)
                assert by is not None
                with self.hot.using(by.name):
                    if answered:
                        await answered.wait()
                    return by.name
        except Refused as refused:
            return refused.words


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(180):
            return await coroutine

    return asyncio.run(bounded())


async def until(true) -> None:
    while not true():
        await asyncio.sleep(0.01)


def test_a_cold_model_is_switched_to_and_answers(spark):
    async def two() -> list[str]:
        door = Door(spark)
        await door.hot.look()
        found = await asyncio.gather(door.request("qwen"), door.request("qwen"))
        return [*found, *door.asked]

    assert run(two()) == ["qwen", "qwen", "qwen"]
    assert spark.hot == ["qwen"]
    assert any(call.endswith("--worker qwen anna, by the gateway") for call in spark.systemd.calls)


def test_what_runs_is_not_cut_off(spark):
    async def story() -> None:
        door, answered = Door(spark), asyncio.Event()
        await door.hot.look()
        running = asyncio.create_task(door.request("mistral", answered))
        cold = asyncio.create_task(door.request("qwen"))
        await until(lambda: door.swaps.waiting)
        await door.looked()
        assert (door.asked, spark.hot) == ([], ["mistral"])
        answered.set()
        assert await running == "mistral"
        assert await cold == "qwen"

    run(story())


def test_a_client_of_the_engines_own_port_is_not_cut_off(spark):
    async def story() -> None:
        door = Door(spark)
        spark.engine.metrics = PAGE.format(running=1.0)
        await door.hot.look()
        cold = asyncio.create_task(door.request("qwen"))
        await until(lambda: spark.engine.looks > 3)
        assert (door.asked, spark.hot) == ([], ["mistral"])
        spark.engine.metrics = PAGE.format(running=0.0)
        assert await cold == "qwen"

    run(story())


def test_the_switchs_own_reason_reaches_who_waits(spark):
    spark.tell("qwen", memory_gib=500.0)

    async def story() -> str:
        door = Door(spark)
        await door.hot.look()
        return await door.request("qwen")

    said = run(story())
    assert said.startswith("the switch to qwen failed: qwen needs 500.0 GiB")
    assert spark.hot == ["mistral"]


def test_somebody_elses_switch_is_waited_for(spark):
    async def story() -> None:
        door = Door(spark)
        with switch_lock.held(spark.paths.switch_lock, "ben", "mistral"):
            cold = asyncio.create_task(door.request("qwen"))
            await until(lambda: door.swaps.waiting)
            await door.looked()
            assert door.asked == []
        assert await cold == "qwen"

    run(story())


def test_who_hangs_up_before_the_switch_leaves_nothing_behind(spark):
    async def story() -> None:
        door = Door(spark, least_hot_s=3600)
        changed = int(time.monotonic() * 1e6)
        spark.systemd.unit(
            UNITS["mistral"],
            ActiveState="active",
            SubState="running",
            StateChangeTimestampMonotonic=str(changed),
        )
        cold = asyncio.create_task(door.request("qwen"))
        await until(lambda: door.swaps.waiting == {"qwen": 1})
        cold.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cold
        assert door.swaps.waiting == {}
        assert await door.request("mistral") == "mistral"
        assert door.asked == []

    run(story())


def test_while_systemd_does_not_answer_nothing_is_switched(spark, monkeypatch):
    async def story() -> None:
        door = Door(spark)
        refused = subprocess.CompletedProcess([], 1, "", "")
        monkeypatch.setattr(runner, "run", lambda *_, **__: refused)
        cold = asyncio.create_task(door.request("qwen"))
        await until(lambda: door.swaps.waiting)
        await door.looked()
        assert door.asked == []
        cold.cancel()

    run(story())


def test_a_fault_of_the_gateway_itself_leaves_nobody_waiting(spark, capsys):
    async def story() -> str:
        door = Door(spark)

        async def look() -> None:
            raise ZeroDivisionError("of the test")

        door.hot.look = look
        return await door.request("qwen")

    assert run(story()).startswith("the gateway could not find out what is hot")
    assert "ZeroDivisionError: of the test" in capsys.readouterr().out


def test_who_comes_while_a_model_is_let_go_is_not_cut_off(spark):
    async def story() -> list[str]:
        door = Door(spark)
        going = asyncio.create_task(door.swaps.let_go())
        await until(lambda: door.asked)
        late = await door.request("mistral")
        assert await going == "no model is hot"
        return [late, *door.asked]

    assert run(story()) == ["mistral", "none", "mistral"]


def test_what_is_used_is_not_let_go(spark):
    async def story() -> None:
        door, answered = Door(spark), asyncio.Event()
        await door.hot.look()
        running = asyncio.create_task(door.request("mistral", answered))
        await until(lambda: door.hot.running("mistral"))
        assert not await door.swaps.let_go()
        answered.set()
        await running
        spark.engine.metrics = PAGE.format(running=1.0)
        assert not await door.swaps.let_go()
        with switch_lock.held(spark.paths.switch_lock, "ben", "mistral"):
            assert not await door.swaps.let_go()
        assert (door.asked, spark.hot) == ([], ["mistral"])

    run(story())


def in_a_cluster(spark: SwitchingSpark, name: str, rank: int) -> None:
    """Have a target run on this host and on spark2."""
    spark.tell(name, cluster="pair")
    data = json.loads(spark.paths.targets.read_text())
    members = [{"name": f"spark{number}", "address": f"127.0.1.{number}"} for number in (1, 2)]
    pair = {"name": "pair", "rank": rank, "port": 1, "members": members}
    spark.paths.targets.write_text(json.dumps({**data, "clusters": {"pair": pair}}))


class Twins:
    """The other gateways; what is hot at each of them, as `Peers.hot` tells it."""

    def __init__(self, **hot: str | None) -> None:
        self._hot = hot

    async def hot(self) -> dict[str, str | None]:
        return self._hot


@pytest.mark.parametrize(
    ("twins", "words"),
    [
        (Twins(spark2="tiny"), "tiny is hot on spark2, which pair needs: switch by hand"),
        (Twins(spark2=None), "the gateway of spark2 does not say what is hot there"),
        (Twins(spark3=""), "the gateway of spark2 does not say what is hot there"),
        (None, "the gateway of spark2 does not say what is hot there"),
    ],
)
def test_no_request_takes_a_model_of_another_member_away(spark, twins, words):
    in_a_cluster(spark, "qwen", rank=0)

    async def story() -> list[str]:
        door = Door(spark, peers=twins)
        await door.hot.look()
        return [await door.request("qwen"), *door.asked]

    assert run(story()) == [words]


def test_where_no_member_has_a_model_the_cluster_is_switched(spark):
    in_a_cluster(spark, "qwen", rank=0)

    async def story() -> list[str]:
        door = Door(spark, peers=Twins(spark2=""))
        await door.hot.look()
        await door.request("qwen")
        return door.asked

    assert run(story()) == ["qwen"]


def test_a_rank_that_runs_here_is_not_taken_away(spark):
    in_a_cluster(spark, "mistral", rank=1)

    async def story() -> list[str]:
        door = Door(spark)
        await door.hot.look()
        return [await door.request("qwen"), *door.asked]

    assert run(story()) == ["mistral is hot here, and spark1 answers for it: switch there"]
