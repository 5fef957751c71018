"""A model's own port on the wire: what the gateway changes, and that nothing else is changed."""

import contextlib
import gzip
import http.client
import json
import signal
import socket
import threading
from pathlib import Path

import gateway_process
import pytest
from gateway_process import CHAT, OK, STREAM, TWO, Spark, ask, error, hot, send
from lab_servers import free_port, until
from raw_engine import LIMIT_S, Wire, chunk

from lockstep.onhost.gateway import server
from lockstep.onhost.gateway.configuration import ListenAddress

pytestmark = pytest.mark.slow
SETTINGS: dict[str, object] = {}
TALK = json.dumps({"messages": TWO}).encode()
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def spark(gateway: Spark) -> Spark:
    """The host of all tests here; mistral is hot, whatever a test before did."""
    hot(gateway, "mistral")
    return gateway


def exchange(spark: Spark, request: bytes, answer: bytes = OK) -> tuple[bytes, str]:
    """Send these very bytes; what the engine got (head and body), and the whole answer."""
    with spark.raw("model") as client:
        client.sendall(request)
        wire = spark.accept("mistral")
        engine_request = wire.next_request()
        wire.send(answer)
        wire.socket.close()
        with client.makefile("rb") as reply:
            reply_bytes = reply.read()
    headers = [f"{name}: {value}" for name, value in engine_request.headers]
    head = "\n".join([engine_request.line, *headers, ""]).encode()
    return head + engine_request.body, reply_bytes.decode("latin-1")


def begin_talk(spark: Spark, body: bytes = TALK) -> tuple[http.client.HTTPConnection, Wire]:
    """A request that has come to the engine: the client, and the engine's side."""
    return send(spark, body, to="mistral", listener="model")[:2]


def post_request(spark: Spark, path: str, body: bytes, *headers: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: spark1", f"content-length: {len(body)}", *headers]
    request = "\r\n".join([*head, "connection: close", "", ""]).encode() + body
    engine_bytes, answer = exchange(spark, request)
    assert answer.endswith("ok")
    return engine_bytes


def test_two_user_messages_become_one_and_the_length_is_right(spark):
    body = json.dumps({"model": "m", "messages": TWO, "n": 1}).encode()
    engine_bytes = post_request(spark, CHAT, body, "authorization: Bearer secret")
    merged_body = b'{"model": "m", "messages": [{"role":"user","content":"a\\n\\nb"}], "n": 1}'
    head = b"POST %s HTTP/1.1\nhost: spark1\nauthorization: Bearer secret\nContent-Length: %d\n"
    assert engine_bytes == head % (CHAT.encode(), len(merged_body)) + merged_body


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (CHAT, b' { "messages" : [ {"role":"user", "content":"\\u00e9"} ] , "x" : 1.50 } ', []),
        (CHAT, b'{"messages": [}', []),
        (CHAT, gzip.compress(TALK, mtime=0), ["content-encoding: gzip"]),
        ("/v1/completions", TALK, []),
        ("/v1/audio/transcriptions", bytes(range(256)) * 50, []),
        (CHAT + "/", TALK, []),
    ],
)
def test_every_other_body_passes_byte_for_byte(spark, path, body, headers):
    line, _, engine_bytes = post_request(spark, path, body, *headers).partition(b"\n")
    assert line == f"POST {path} HTTP/1.1".encode()
    assert engine_bytes.endswith(body)
    assert engine_bytes.lower().count(b"content-length: %d\n" % len(body)) == 1


def test_request_headers_pass_in_order_but_for_those_of_the_connection(spark):
    request = (
        b"GET /a%2Fb%20c/../d?x=%41&y=a+b&z=| HTTP/1.1\r\nHost: spark1:30000\r\n"
        b"User-Agent: agent/1\r\nX-Tag: one\r\nX-Tag: two\r\nCookie: a=1\r\nAccept: */*\r\n"
        b"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n"
    )
    engine_bytes, _ = exchange(spark, request)
    assert engine_bytes == (
        b"GET /a%2Fb%20c/../d?x=%41&y=a+b&z=| HTTP/1.1\nhost: spark1:30000\n"
        b"user-agent: agent/1\nx-tag: one\nx-tag: two\ncookie: a=1\naccept: */*\n"
    )


def test_answers_come_back_as_they_are(spark):
    body = gzip.compress(b"x" * 99, mtime=0)
    answer = (
        b"HTTP/1.1 429 Too Many Requests\r\nServer: engine\r\nSet-Cookie: a=1\r\n"
        b"Set-Cookie: b=2\r\nRetry-After: 3\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body
    _, client_text = exchange(spark, GET, answer)
    expected_head = (
        b"http/1.1 429 too many requests\r\nserver: engine\r\nset-cookie: a=1\r\n"
        b"set-cookie: b=2\r\nretry-after: 3\r\ncontent-encoding: gzip\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    )
    assert client_text.encode("latin-1").lower() == expected_head + body.lower()
    # Those cookies never reach another client.
    engine_bytes, client_text = exchange(spark, GET, b"HTTP/1.1 204 No Content\r\n\r\n")
    assert engine_bytes == b"GET / HTTP/1.1\nhost: localhost\n"
    assert client_text.startswith("HTTP/1.1 204 ") and client_text.endswith("\r\n\r\n")


def test_each_event_passes_before_the_next_one_is_made(spark):
    client, wire = begin_talk(spark)
    wire.send(STREAM)
    answer = client.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    for number in range(5):
        event = b"data: %d\n\n" % number
        wire.send(chunk(event))
        assert answer.read1() == event
    wire.socket.close()
    # A stream that the engine breaks off is seen to be broken.
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    client.close()


def test_an_upload_passes_as_it_comes(spark):
    with spark.raw("model") as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            data = b"%d" % number * 10
            client.sendall(chunk(data))
            if not number:
                wire = spark.accept("mistral")
                wire.until(b"\r\n\r\n")
            assert wire.chunk() == data
        client.sendall(b"0\r\n\r\n")
        assert wire.chunk() == b""
        wire.send(OK)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_who_hangs_up_ends_the_work(spark):
    client, wire = begin_talk(spark)
    wire.send(STREAM + chunk(b"data: 1\n\n"))
    with client.getresponse() as answer:
        assert answer.read1() == b"data: 1\n\n"
    client.close()
    assert wire.wait_until_closed()
    with spark.raw("model") as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
        wire = spark.accept("mistral")
        wire.until(b"half")
    assert wire.wait_until_closed()


def test_a_slow_reader_slows_the_engine_down(spark):
    most = 64 * 2**20
    client, wire = begin_talk(spark)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % most)
    sent_bytes = 0
    wire.socket.settimeout(1)
    with contextlib.suppress(TimeoutError):
        while sent_bytes < most:
            sent_bytes += wire.socket.send(b"x" * 65536)
    wire.socket.settimeout(LIMIT_S)
    # What the sockets' own buffers hold, and no more.
    assert sent_bytes < most / 2
    sender = threading.Thread(target=wire.send, args=(b"x" * (most - sent_bytes),))
    sender.start()
    assert len(client.getresponse().read()) == most
    sender.join()


def test_no_request_depends_on_a_connection_that_the_engine_closes(spark):
    client = spark.client("model")
    for is_answered in (True, True, False):
        client.request("GET", "/health")
        wire = spark.accept("mistral")
        wire.next_request()
        if is_answered:
            wire.send(OK)
            assert client.getresponse().read() == b"ok"
            assert wire.wait_until_closed()
    wire.socket.close()
    answer = client.getresponse()
    assert answer.status == 502
    assert "gave no answer" in error(answer.read())["message"]


def failed_answer(spark: Spark) -> tuple[int, str]:
    answer, body = ask(spark, "POST", CHAT, TALK, listener="model")
    return answer.status, error(body)["message"]


def test_a_model_that_is_not_hot_is_a_503_and_nobody_is_asked(spark):
    hot(spark, "qwen")
    assert failed_answer(spark) == (503, "mistral is loading or down")
    spark.nobody_asked("mistral")


def test_a_unit_whose_processes_are_gone_or_new_is_looked_at_anew(spark):
    """systemd said that it was hot. Another engine may have its port by now."""
    group = spark.paths.groups_of_units / "mistral.service"
    (group / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    spark.hot_model = None
    assert failed_answer(spark)[0] == 503
    hot(spark, "mistral")
    group.rename(group.with_name("gone"))
    group.mkdir()
    (group / "cgroup.events").write_text("populated 1\n")
    spark.systemd.unit("mistral.service", ActiveState="activating", SubState="start")
    spark.hot_model = None
    assert failed_answer(spark)[0] == 503
    spark.nobody_asked("mistral")


def test_an_engine_that_does_not_listen_is_a_503_and_a_stop_waits_for_no_stream(tmp_path):
    with gateway_process.running(tmp_path) as spark:
        spark.heat("mistral")
        client, wire = begin_talk(spark)
        wire.send(STREAM)
        client.getresponse()
        spark.engines["mistral"].close()
        answer, body = ask(spark, "POST", CHAT, TALK, listener="model")
        assert (answer.status, answer.getheader("retry-after")) == (503, "5")
        assert error(body)["code"] == 503 and "is loading or down" in error(body)["message"]
        assert "Traceback" not in spark.stop()
        assert spark.process and spark.process.returncode in (0, -signal.SIGTERM)
        assert wire.wait_until_closed()


def test_a_port_that_is_taken_is_named(tmp_path):
    with gateway_process.prepare_spark(tmp_path) as spark:
        port = spark.listener("model").port
        with (
            socket.create_server(("127.0.0.1", port)),
            gateway_process.start(spark, str(tmp_path / "none"), {}) as process,
        ):
            output = process.communicate(timeout=LIMIT_S)[0]
        assert process.returncode == 1 and "Traceback" not in output
        assert f"cannot listen at 127.0.0.1, port {port}" in output


def test_nothing_is_left_open_after_all_that(spark):
    def connections() -> bool:
        assert spark.process
        folder = Path(f"/proc/{spark.process.pid}/fd")
        links = [str(entry.readlink()) for entry in folder.iterdir()]
        # The listening sockets of four listeners and the event loop's own pair.
        return len([link for link in links if link.startswith("socket:")]) <= 6

    until(connections, "connections of ended requests are closed")


def test_answers_do_not_wait_for_acknowledgements():
    [listener] = server.listening_sockets([ListenAddress("local", "127.0.0.1", free_port())])
    with listener as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
