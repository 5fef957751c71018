"""Asking for a switch at its socket, where it does not go well; the rest: test_switch_queue.py."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop

from lockstep.onhost.gateway import switch_client


async def every(*words, path) -> list[dict]:
    return [message async for message in switch_client.request_switch(*words, path)]


@in_event_loop
async def test_without_the_socket_the_answer_names_its_unit(tmp_path):
    (end,) = await every("qwen", "anna", path=tmp_path / "none.sock")
    assert end["code"] == 1
    assert "No such file or directory" in end["said"]
    assert end["said"].endswith("Remedy: systemctl status lockstep-gateway-switch.socket")


@pytest.mark.parametrize("answer_bytes", [b"", b"no JSON\n", b'{"phase": "stop", "line": "x"}\n'])
@in_event_loop
async def test_an_answer_without_an_end_says_that_the_end_is_not_known(tmp_path, answer_bytes):
    async def answer(reader, writer):
        await reader.readline()
        writer.write(answer_bytes)
        writer.close()

    async with await asyncio.start_unix_server(answer, path := tmp_path / "odd.sock"):
        messages = await every("qwen", "anna", path=path)
    assert messages[-1]["code"] == 141
