"""A wave's requests: all are sent before any is read, by one thread, and each says how it broke."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import pytest

from lockstep.bench.client import Client, Clock
from lockstep.bench.sample import Ask

_Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ASK = Ask("x", ({"role": "user", "content": "?"},), 8)


@contextmanager
def serving(answer: _Answer) -> Iterator[str]:
    """A server that answers each connection by `answer`, in a thread of its own."""
    ready, url = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def start() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        ready.set()

    def run() -> None:
        starting: Coroutine[Any, Any, None] = start()
        loop.run_until_complete(starting)
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield url[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def request(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The body of a request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert head.startswith("post /v1/chat/completions http/1.1\r\n")
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    body: dict[str, Any] = json.loads(await reader.readexactly(length))
    return body


def events(tokens: int) -> list[bytes]:
    """A streamed answer of so many tokens."""
    usage = {"prompt_tokens": 3}
    messages = [
        {"model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}],
         "usage": {**usage, "completion_tokens": number}}
        for number in range(1, tokens + 1)
    ]  # fmt: skip
    end = {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    return [
        *(f"data: {json.dumps(message)}\n\n".encode() for message in (*messages, end)),
        b"data: [DONE]\n\n",
    ]


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_all_of_a_wave_are_sent_before_any_is_read_and_by_one_thread() -> None:
    came, all_came = 0, asyncio.Event()
    threads = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        await request(reader)
        came += 1
        if came == 64:
            all_came.set()
        await all_came.wait()
        writer.write(HEAD)
        # In turn, as an engine's steps are.
        for event in events(8):
            writer.write(chunk(event))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    def now() -> float:
        threads.add(threading.get_ident())
        return perf_counter()

    with serving(answer) as url:
        client = Client(url, "m", clock=Clock(now=now))
        client.timeout_s = 20.0
        samples, seconds = client.together([ASK] * 64)
    assert [sample.fault for sample in samples] == [""] * 64
    assert {(sample.tokens, sample.pieces) for sample in samples} == {(8, 8)}
    assert threads == {threading.get_ident()}
    assert seconds >= max(sample.seconds for sample in samples)


def test_a_body_is_read_however_it_is_cut() -> None:
    body = HEAD + b"".join(map(chunk, events(3))) + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        for at in range(0, len(body), 7):
            writer.write(body[at : at + 7])
            await writer.drain()

    with serving(answer) as url:
        measurement = Client(url, "m").complete(ASK)
    assert (measurement.fault, measurement.tokens, measurement.text) == ("", 3, "aaa")


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(events(3)))
        writer.close()

    with serving(answer) as url:
        measurement = Client(url, "m").complete(ASK)
    assert (measurement.fault, measurement.tokens) == ("", 3)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "ConnectionError: no answer"),
        (b"SSH-2.0-OpenSSH\r\n", "ConnectionError: no answer of HTTP: b'SSH-2.0-OpenSSH"),
        (HEAD + chunk(events(3)[0]) + b"40\r\nda", "IncompleteReadError: "),
        (HEAD + b"zz\r\n", "not an answer of this API: invalid literal"),
    ],
)
def test_a_broken_answer_is_a_fault(content: bytes, fault: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(content)
        writer.close()

    with serving(answer) as url:
        [measurement], _ = Client(url, "m").together([ASK])
    assert measurement.fault.startswith(fault), measurement.fault
    assert not measurement.good


def test_an_answer_that_does_not_come_is_timed_out() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await reader.read()

    with serving(answer) as url:
        client = Client(url, "m")
        client.timeout_s = 0.05
        measurement = client.complete(ASK)
    assert measurement.fault == "timed out: no answer within 0 s"


def test_nobody_at_the_port_is_a_fault_of_each_sample() -> None:
    samples, _ = Client("http://127.0.0.1:9", "m").together([ASK, ASK])
    assert all(sample.fault.startswith("ConnectionRefusedError: ") for sample in samples)
