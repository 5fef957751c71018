"""Requests that were broken at random: the gateway survives, and without a key no engine is asked.

The same seed sends the same requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gateway_process import KEYS, Spark, running

from lockstep.onhost.gateway import app

SEED, AT_ONCE = 20261123, 32
#: Patience of a client that sends half a request, in other answers of the gateway, which are
#: PULSE_S seconds apart. So a gateway with little processor time gets more patience.
PATIENCE, PULSE_S = 5, 0.1
PATHS = (*app.MODEL_PATHS, "/", "/health", "/metrics", "/status", "/switch", "/v1/models")
_READ = ("/", "/health", "/metrics", "/status", "/v1/models")
_ODD_PATHS = (
    *("*", "//v1/models", "/v1/../v1/models", "/v1/models/..%2f..", "/%76%31/models"),
    *("/v1/models;x", "http://other.example/v1/models", "/v1/chat/completions/"),
    *("/v1/chat%2Fcompletions", "/\x00", "/.", "/v1/.", "/invocations", "/pause", "/v1"),
    *("/switch/..", "/metrics%00", "/" + "a" * 9000, "/v1/chat/completions?a=" + "b" * 900),
    *("/v1/chat/completions#x", "/\xff\xfe", "v1/models", ""),
)
_METHODS = (
    *("GET", "POST", "POST", "POST", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"),
    *("CONNECT", "post", "PO\x00ST", "P" * 300, "", "PRI"),
)
_HEADERS = (
    *(b"content-length: -1", b"content-length: 5", b"content-length: 99999999999999999999"),
    *(b"content-length: 1\r\ncontent-length: 2", b"transfer-encoding: chunked"),
    *(b"expect: 100-continue", b"transfer-encoding: chunked\r\ncontent-length: 4"),
    *(b"transfer-encoding: gzip, chunked", b"content-encoding: gzip", b"content-encoding: \xff"),
    *(b"content-type: text/plain; charset=utf-16", b"authorization: Bearer"),
    *(b"authorization: Bearer  ", b"authorization: Basic YTpi", b"x-api-key:"),
    *(b"authorization: Bearer \xff\xfe", b"x-api-key: " + b"k" * 9000),
    *(b"connection: upgrade\r\nupgrade: h2c", b"connection: close, authorization, host"),
    *(b"x: " + b"y" * 70000, b"x\x00: y", b" folded", b"novalue", b"host: evil.example", b"host: "),
    *(b"host: a\r\nhost: b", b"origin: https://evil.example", b"x-forwarded-for: 10.0.0.1"),
    *(b"forwarded: for=10.0.0.1", b"x-lockstep-person: x", b"x-lockstep-role: operate"),
    *(b"range: bytes=0-1", b"accept: text/event-stream"),
    b"\r\n".join(b"h%d: v" % n for n in range(300)),
)
_BODIES = (
    *(b"", b"{", b"[]", b"null", b"7", b'"text"', b"{}", b'{"model": "qwen"'),
    *(b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b'{"model": "\\ud800"}', b"[" * 90000),
    *(b'{"a":' * 20000, b'{"model": 1e999}', b'{"model": NaN}'),
    *(b'{"model": "qwen", "model": "mistral"}', b'{"model": ["qwen"]}', b"\x00" * 200),
    *(b'{"model": "qwen", "n": 1e30}', b'{"model": "qwen", "top_logprobs": -1}', b"9" * 30000),
    *(b'{"model": "qwen", "messages": {"role": {}}}', b'{"model": "auto", "stream": "yes"}'),
    *(b'{"model": "' + b"q" * 100000 + b'"}', b'{"model": "none"}', b'{"model": {"a": 1}}'),
    b"5\r\n{}\r\n0",
)


@dataclass
class Engine:
    """Answers every request, and keeps its first bytes."""

    sockets: list[socket.socket]
    requests: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for listening in self.sockets:
            listening.settimeout(None)
            threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            client.settimeout(5)
            data = b""
            try:
                while b"\r\n\r\n" not in data and (part := client.recv(65536)):
                    data += part
                self.requests.append(data)
                body = b'{"ok": true}'
                client.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%b" % (len(body), body)
                )
            except OSError:
                return


def mutated_request(dice: random.Random, key: bytes | None) -> bytes:
    """One request, whole or broken in a few places."""
    path = dice.choice(PATHS) if dice.random() < 0.8 else dice.choice(_ODD_PATHS)
    usual = "GET" if path in _READ else "POST"
    method = usual if dice.random() < 0.7 else dice.choice(_METHODS)
    good = {"model": dice.choice(("qwen", "auto", "coder", "mistral", "nothing")), "messages": []}
    body = json.dumps(good | {"stream": dice.random() < 0.3}).encode()
    if dice.random() < 0.4:
        body = dice.choice(_BODIES)
    headers = [b"host: localhost", b"content-type: application/json"]
    if dice.random() < 0.85:
        headers.append(b"content-length: %d" % len(body))
    if key and dice.random() < 0.9:
        headers.append(dice.choice((b"authorization: Bearer ", b"x-api-key: ")) + key)
    headers += dice.choices(_HEADERS, k=dice.choice((0, 0, 0, 0, 1, 1, 2)))
    dice.shuffle(headers)
    line = f"{method} {path} HTTP/{dice.choice(('1.1',) * 9 + ('1.0', '2.0', '9', ''))}"
    text = line.encode("latin-1") + b"\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body
    if dice.random() < 0.15:
        corrupted_text = bytearray(text)
        for _ in range(dice.randint(1, 8)):
            corrupted_text[dice.randrange(len(corrupted_text))] = dice.randrange(256)
        text = bytes(corrupted_text)
    if dice.random() < 0.05:
        text = text[: dice.randrange(len(text))]
    if dice.random() < 0.02:
        text += text
    return text


@dataclass
class Pulse:
    """Counts the gateway's answers to another client, one after the other."""

    spark: Spark
    count: int = 0
    beaten: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def go_on(self) -> None:
        """Ask again and again on one connection."""
        listener = self.spark.listener("local")
        reader, writer = await asyncio.open_connection(listener.address, listener.port)
        try:
            while True:
                writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await reader.readuntil(b'{"status": "ok"}')
                async with self.beaten:
                    self.count += 1
                    self.beaten.notify_all()
                await asyncio.sleep(PULSE_S)
        finally:
            writer.close()

    async def patience_ends(self) -> None:
        """Return when a client that begins to wait now would lose its patience."""
        until = self.count + PATIENCE
        async with self.beaten:
            await self.beaten.wait_for(lambda: self.count >= until)


async def fetch_answer(spark: Spark, pulse: Pulse, kind: str, text: bytes) -> bytes:
    """The part of an answer that comes within the patience of a client."""
    listener = spark.listener(kind)
    opening = (
        asyncio.open_connection(listener.address, listener.port)
        if listener.port
        else asyncio.open_unix_connection(listener.address)
    )
    reader, writer = await opening
    answer = b""
    try:
        writer.write(text)
        while part := await within(pulse.patience_ends(), reader.read(65536)):
            answer += part
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


async def within(patience: Coroutine[Any, Any, None], reading: Coroutine[Any, Any, bytes]) -> bytes:
    """The bytes that are read before the patience ends; b"" for none."""
    waits, reads = asyncio.ensure_future(patience), asyncio.ensure_future(reading)
    try:
        await asyncio.wait((waits, reads), return_when=asyncio.FIRST_COMPLETED)
        return reads.result() if reads.done() else b""
    finally:
        waits.cancel()
        reads.cancel()


async def send_requests(
    spark: Spark, kinds: tuple[str, ...], number: int, key: bytes | None
) -> Counter[str]:
    """Send so many requests, some at once; returns the count of each status ("" for none)."""
    turns, statuses, pulse = asyncio.Semaphore(AT_ONCE), Counter[str](), Pulse(spark)

    async def send_single(index: int) -> None:
        dice = random.Random(f"{SEED} {key is None} {index}")
        kind, text = dice.choice(kinds), mutated_request(dice, key)
        async with turns:
            answer = await fetch_answer(spark, pulse, kind, text)
        status = answer.split(b" ", 2)[1].decode("latin-1") if answer else ""
        assert not answer or answer.startswith(b"HTTP/1.1 "), (text, answer)
        assert status != "500", (kind, text, answer)
        if status == "200" and key is None:
            assert text.split(b" ", 2)[1].partition(b"?")[0].partition(b"#")[0] in _FREE, (
                text,
                answer,
            )
        statuses[status] += 1

    beating = asyncio.create_task(pulse.go_on())
    await asyncio.gather(*(send_single(index) for index in range(number)))
    assert not beating.done(), beating.result()
    beating.cancel()
    return statuses


_FREE = {path.encode() for path in app.FREE} | {b"/root.crt"}


@pytest.mark.slow
def test_nothing_falls_over_and_no_engine_is_asked_without_a_key(tmp_path: Path) -> None:
    number = 300
    with running(tmp_path) as spark:
        engine = Engine(list({id(value): value for value in spark.engines.values()}.values()))
        without = asyncio.run(send_requests(spark, ("open", "tls"), number, None))
        assert engine.requests == []
        assert without["401"] > number / 3 and without["200"] > 0, without
        key = KEYS["operate"].encode()
        with_key = asyncio.run(send_requests(spark, ("open", "tls", "local"), number, key))
        assert with_key["200"] > number / 20 and with_key["400"] > number / 10, with_key
        allowed_paths = {path.encode() for path in app.MODEL_PATHS}
        # The facts of the page come from the engine's counters.
        model_requests = [
            value
            for value in engine.requests
            if value and not value.startswith(b"GET /metrics HTTP/1.1")
        ]
        assert len(model_requests) > number / 50
        for request in model_requests:
            method, target = request.split(b" ", 2)[:2]
            assert method == b"POST" and target.partition(b"?")[0] in allowed_paths, request[:300]
            assert key not in request
        with contextlib.closing(spark.client()) as client:
            client.request("GET", "/health")
            assert client.getresponse().status == 200
        output = spark.stop()
        assert "Traceback" not in output and "Exception" not in output, output[-3000:]
        assert KEYS["operate"] not in output
