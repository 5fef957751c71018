"""Asking for a switch at its socket."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing

import pytest

from lockstep.onhost.gateway import ask


async def every(*words, path) -> list[dict]:
    return [message async for message in ask.switch(*words, path)]


def test_a_switch_is_told_to_its_end(spark):
    *told, end = asyncio.run(every("qwen", "anna", path=spark.socket))

    assert (end["code"], spark.hot) == (0, ["qwen"])
    assert all(set(each) == {"phase", "line"} for each in told) and told


def test_who_stops_listening_leaves_the_switch_alone(spark):
    async def first() -> dict:
        async with aclosing(ask.switch("qwen", "anna", spark.socket)) as told:
            return await anext(told)

    assert asyncio.run(first()) == {"phase": "stop", "line": "stopping mistral"}
    assert spark.started[0].wait(180) == 0
    asyncio.run(until(lambda: spark.hot == ["qwen"]))


async def until(true) -> None:
    async with asyncio.timeout(180):
        while not true():
            await asyncio.sleep(0.01)


def test_without_the_socket_the_answer_names_its_unit(tmp_path):
    (end,) = asyncio.run(every("qwen", "anna", path=tmp_path / "none.sock"))

    assert end["code"] == 1
    assert "No such file or directory" in end["said"]
    assert end["said"].endswith("Remedy: systemctl status lockstep-gateway-switch.socket")


@pytest.mark.parametrize("sent", [b"", b"no JSON\n", b'{"phase": "stop", "line": "x"}\n'])
def test_an_answer_without_an_end_says_that_the_end_is_not_known(tmp_path, sent):
    path = tmp_path / "odd.sock"

    async def run() -> list[dict]:
        async def answer(reader, writer):
            await reader.readline()
            writer.write(sent)
            writer.close()

        async with await asyncio.start_unix_server(answer, path):
            return await every("qwen", "anna", path=path)

    assert asyncio.run(run())[-1]["code"] == 141


def test_a_switch_of_a_gateway_that_is_killed_is_the_hosts_own(spark):
    """The connection breaks as it does when its process ends."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(spark.socket))
        asker.sendall(b'{"target": "qwen", "person": null}\n')
    asyncio.run(until(lambda: spark.hot == ["qwen"]))
