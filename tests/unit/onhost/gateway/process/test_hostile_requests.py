"""Requests that are meant to harm, on the wire: each is answered, and none is waited for."""

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter

import pytest
from event_loop import in_event_loop
from gateway_process import CHAT, KEYS, OK, Spark, ask, error, running

from lockstep.onhost.gateway import app
from lockstep.onhost.gateway.configuration import ListenAddress

pytestmark = pytest.mark.slow
#: It waits for no body that is not there at once.
SETTINGS = {"patience_s": 0.2}


def full_answer(spark: Spark, request: bytes, *, more: bool = True) -> bytes:
    """The bytes until the gateway closes. Without `more` the client says that it sends no more."""
    with spark.raw() as client:
        client.sendall(request)
        if not more:
            client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answer:
            return answer.read()


LENGTH, CHUNKED = b"content-length: 100\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("body_part", [LENGTH + b"{", LENGTH, CHUNKED + b"1\r\n{\r\n"])
def test_a_body_that_does_not_end_is_answered_and_its_connection_closed(spark, body_part):
    request = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n".encode() + body_part
    head, _, body = full_answer(spark, request).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close" in head.lower()
    assert "the rest of the body did not come" in error(body)["message"]
    spark.nobody_asked()


def test_who_only_asks_and_sends_no_more_is_answered(spark):
    request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert full_answer(spark, request * 5, more=False).count(b"HTTP/1.1 200 ") == 5


def test_who_a_request_is_for_is_said_once(spark):
    lines = (b"GET /v1/models HTTP/1.1", *[b"host: localhost"] * 2, b"connection: close")
    assert full_answer(spark, b"\r\n".join([*lines, b"", b""])).startswith(b"HTTP/1.1 400 ")


#: Requests that are broken at random; the same seed sends the same ones.
SEED, NUMBER, AT_ONCE = 20261123, 300, 32
PATHS = (*app.MODEL_PATHS, "/", "/health", "/metrics", "/status", "/switch", "/v1/models")
_READ = ("/", "/health", "/metrics", "/status", "/v1/models")
_ODD_PATHS = (
    *("", "*", "//v1/models", "/v1/../v1/models", "/v1/models/..%2f..", "/%76%31/models", "/."),
    *("http://other.example/v1/models", "/v1%2Fchat/completions", "/v1/chat/completions/", "/\x00"),
    *("/invocations", "/pause", "/switch/..", "/metrics%00", "/" + "a" * 9000, "/\xff\xfe"),
    *("/v1/chat/completions#x", "/v1/chat/completions?a=" + "b" * 900, "v1/models"),
)
_METHODS = ("GET", "POST", "POST", "PUT", "HEAD", "CONNECT", "post", "PO\x00ST", "P" * 300, "")
_HEADERS = (
    *(b"content-length: -1", b"content-length: 5", b"content-length: 99999999999999999999"),
    *(b"content-length: 1\r\ncontent-length: 2", b"transfer-encoding: chunked"),
    *(b"expect: 100-continue", b"transfer-encoding: chunked\r\ncontent-length: 4"),
    *(b"transfer-encoding: gzip, chunked", b"content-encoding: gzip", b"content-encoding: \xff"),
    *(b"authorization: Bearer", b"authorization: Bearer  ", b"authorization: Bearer \xff\xfe"),
    *(b"authorization: Basic YTpi", b"x-api-key:", b"x-api-key: " + b"k" * 9000),
    *(b"connection: upgrade\r\nupgrade: h2c", b"connection: close, authorization, host"),
    *(b"x: " + b"y" * 70000, b"x\x00: y", b" folded", b"novalue", b"host: evil.example", b"host: "),
    *(b"origin: https://evil.example", b"x-forwarded-for: 10.0.0.1", b"x-lockstep-person: x"),
    b"\r\n".join(b"h%d: v" % n for n in range(300)),
)
_BODIES = (
    *(b"", b"{", b"[]", b"null", b'"text"', b'{"model": "qwen"', b"\xff\xfe{\x00}\x00"),
    *(b"\xef\xbb\xbf{}", b'{"model": "\\ud800"}', b"[" * 90000, b'{"a":' * 20000, b"9" * 30000),
    *(b'{"model": 1e999}', b'{"model": NaN}', b'{"model": ["qwen"]}', b'{"model": "none"}'),
    *(b'{"model": "qwen", "model": "mistral"}', b'{"model": "auto", "stream": "yes"}'),
    *(b'{"model": "qwen", "n": 1e30}', b'{"model": "qwen", "messages": {"role": {}}}'),
    *(b'{"model": "' + b"q" * 100000 + b'"}', b"5\r\n{}\r\n0"),
)


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


async def status_of_answer(listener: ListenAddress, text: bytes) -> str:
    """The status of an answer; "" where the gateway closes without one."""
    reader, writer = await asyncio.open_connection(listener.address, listener.port)
    answer = b""
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        writer.write(text)
        answer = await reader.read(65536)
    assert not answer or answer.startswith(b"HTTP/1.1 "), (text, answer)
    return answer[9:12].decode("latin-1")


async def send_requests(spark: Spark, kind: str, key: bytes | None) -> Counter[str]:
    """Send requests, some at once; returns the count of each status."""
    turns, statuses = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def send_single(index: int) -> None:
        text = mutated_request(random.Random(f"{SEED} {key is None} {index}"), key)
        async with turns:
            status = await status_of_answer(spark.listener(kind), text)
        assert status != "500", text
        if status == "200" and key is None:
            target = text.split(b" ", 2)[1].partition(b"?")[0].partition(b"#")[0]
            assert target.decode("latin-1") in app.FREE, text
        statuses[status] += 1

    await asyncio.gather(*(send_single(index) for index in range(NUMBER)))
    return statuses


@in_event_loop
async def test_nothing_falls_over_and_no_engine_is_asked_without_a_key(tmp_path):
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, EOFError):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)

    # It soon closes the connection of half a request.
    with running(tmp_path, patience_s=1.0) as spark:
        for listening in {*spark.engines.values()}:
            await asyncio.start_server(answer, sock=listening)
        without = await send_requests(spark, "open", None)
        assert requests == []
        assert without["401"] > NUMBER / 3 and without["200"] > 0, without
        key = KEYS["operate"].encode()
        with_key = await send_requests(spark, "local", key)
        assert with_key["200"] > NUMBER / 20 and with_key["400"] > NUMBER / 10, with_key
        # The facts of the page come from the engine's counters.
        model_requests = [text for text in requests if not text.startswith(b"GET /metrics ")]
        assert len(model_requests) > NUMBER / 50
        for request in model_requests:
            method, target = request.decode().split(" ", 2)[:2]
            assert method == "POST" and target.partition("?")[0] in app.MODEL_PATHS, request[:300]
            assert key not in request
        assert ask(spark, "GET", "/health")[0].status == 200
        output = spark.stop()
        for word in ("Traceback", "Exception", KEYS["operate"]):
            assert word not in output
