"""A model's own port on the wire: what the gateway changes, and that nothing else is changed."""

from __future__ import annotations

import gzip
import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateway_process import CHAT, OK, STREAM, TWO, Spark, hot, prepare_spark, running, start
from lab_servers import free_port, until
from raw_engine import Wire, chunk, notify_socket

from lockstep.onhost.gateway import server
from lockstep.onhost.gateway.configuration import ListenAddress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with running(tmp_path_factory.mktemp("model")) as spark:
        yield spark


@pytest.fixture
def spark(gateway: Spark) -> Spark:
    """The host of all tests here; mistral is hot, whatever a test before did."""
    hot(gateway, "mistral")
    return gateway


def own_port(spark: Spark) -> int:
    return spark.listener("model").port


def exchange(spark: Spark, request: bytes, answer: bytes = OK) -> tuple[bytes, str]:
    """Send these very bytes; what the engine got (head and body), and the whole answer."""
    with socket.create_connection(("127.0.0.1", own_port(spark)), timeout=180) as client:
        client.sendall(request)
        wire = spark.accept("mistral")
        engine_request = wire.next_request()
        wire.send(answer)
        wire.socket.close()
        reply_bytes = b""
        while more := client.recv(65536):
            reply_bytes += more
    lines = [
        engine_request.line,
        *(f"{name}: {value}" for name, value in engine_request.headers),
        "",
    ]
    return "\n".join(lines).encode() + engine_request.body, reply_bytes.decode("latin-1")


def begin_request(spark: Spark) -> tuple[http.client.HTTPConnection, Wire]:
    """A request that has come to the engine: the client, and the engine's side."""
    client = spark.client("model")
    client.request("POST", CHAT, json.dumps({"messages": TWO}))
    wire = spark.accept("mistral")
    wire.next_request()
    return client, wire


def post_request(spark: Spark, path: str, body: bytes, *headers: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: spark1", f"content-length: {len(body)}", *headers]
    request = "\r\n".join([*head, "connection: close", "", ""]).encode() + body
    engine_bytes, answer = exchange(spark, request)
    assert answer.endswith("ok")
    return engine_bytes


def test_two_user_messages_become_one_and_the_length_is_right(spark: Spark) -> None:
    body = json.dumps({"model": "m", "messages": TWO, "n": 1}).encode()
    engine_bytes = post_request(spark, CHAT, body, "authorization: Bearer secret")
    merged_body = b'{"model": "m", "messages": [{"role":"user","content":"a\\n\\nb"}], "n": 1}'
    assert (
        engine_bytes
        == (
            b"POST /v1/chat/completions HTTP/1.1\nhost: spark1\nauthorization: Bearer secret\n"
            b"Content-Length: %d\n" % len(merged_body)
        )
        + merged_body
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b' { "messages" : [ {"role":"user", "content":"\\u00e9"} ] , "x" : 1.50 } '),
        (CHAT, b'{"messages": [}'),
        ("/v1/completions", json.dumps({"messages": TWO}).encode()),
        ("/v1/audio/transcriptions", bytes(range(256)) * 50),
        (CHAT + "/", json.dumps({"messages": TWO}).encode()),
    ],
)
def test_every_other_body_passes_byte_for_byte(spark: Spark, path: str, body: bytes) -> None:
    engine_lines = post_request(spark, path, body).partition(b"\n")
    assert engine_lines[0] == f"POST {path} HTTP/1.1".encode()
    assert (
        engine_lines[2].endswith(body)
        and engine_lines[2].lower().count(b"content-length: %d\n" % len(body)) == 1
    )


def test_a_compressed_body_is_not_read(spark: Spark) -> None:
    body = gzip.compress(json.dumps({"messages": TWO}).encode(), mtime=0)
    assert post_request(spark, CHAT, body, "content-encoding: gzip").endswith(body)


def test_request_headers_pass_in_order_but_for_those_of_the_connection(spark: Spark) -> None:
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


def test_status_headers_and_a_compressed_body_come_back_as_they_are(spark: Spark) -> None:
    body = gzip.compress(b"x" * 99, mtime=0)
    answer = (
        b"HTTP/1.1 429 Too Many Requests\r\nServer: engine\r\nSet-Cookie: a=1\r\n"
        b"Set-Cookie: b=2\r\nRetry-After: 3\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body
    _, client_text = exchange(
        spark, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", answer
    )
    assert (
        client_text.encode("latin-1").lower()
        == (
            b"http/1.1 429 too many requests\r\nserver: engine\r\nset-cookie: a=1\r\n"
            b"set-cookie: b=2\r\nretry-after: 3\r\ncontent-encoding: gzip\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        + body.lower()
    )


def test_one_clients_cookies_never_reach_another(spark: Spark) -> None:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    exchange(spark, request, OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=1; Path=/\r\n\r\n"))
    engine_bytes, _ = exchange(spark, request)
    assert engine_bytes == b"GET / HTTP/1.1\nhost: localhost\n"


def test_head_and_answers_without_a_body(spark: Spark) -> None:
    head = b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    _, client_text = exchange(spark, head, b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
    assert "content-length: 7" in client_text and client_text.endswith("\r\n\r\n")
    get = head.replace(b"HEAD", b"GET")
    _, client_text = exchange(spark, get, b"HTTP/1.1 204 No Content\r\n\r\n")
    assert client_text.startswith("HTTP/1.1 204 ") and client_text.endswith("\r\n\r\n")


def test_each_event_passes_before_the_next_one_is_made(spark: Spark) -> None:
    client = spark.client("model")
    client.request("POST", CHAT, json.dumps({"messages": TWO, "stream": True}))
    wire = spark.accept("mistral")
    assert json.loads(wire.next_request().body)["messages"] == [
        {"role": "user", "content": "a\n\nb"}
    ]
    wire.send(STREAM)
    answer = client.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    for number in range(5):
        event = b"data: %d\n\n" % number
        wire.send(chunk(event))
        assert answer.read1() == event
    wire.send(b"0\r\n\r\n")
    assert answer.read() == b""
    client.close()


def test_an_upload_passes_as_it_comes(spark: Spark) -> None:
    with socket.create_connection(("127.0.0.1", own_port(spark)), timeout=180) as client:
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


@pytest.mark.parametrize("answering", [False, True], ids=["before", "in the middle of"])
def test_who_hangs_up_ends_the_work(spark: Spark, answering: bool) -> None:
    client, wire = begin_request(spark)
    if answering:
        wire.send(STREAM + chunk(b"data: 1\n\n"))
        answer = client.getresponse()
        assert answer.read1() == b"data: 1\n\n"
        answer.close()
    client.close()
    assert wire.wait_until_closed()


def test_who_hangs_up_in_the_middle_of_an_upload_ends_it(spark: Spark) -> None:
    with socket.create_connection(("127.0.0.1", own_port(spark)), timeout=180) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
        wire = spark.accept("mistral")
        wire.until(b"half")
    assert wire.wait_until_closed()


def test_a_slow_reader_slows_the_engine_down(spark: Spark) -> None:
    most = 64 * 2**20
    client, wire = begin_request(spark)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % most)
    sent_bytes = fill(wire, most)
    # What the sockets' own buffers hold, and no more.
    assert sent_bytes < most / 2
    sender = threading.Thread(target=wire.send, args=(b"x" * (most - sent_bytes),))
    sender.start()
    answer = client.getresponse()
    read = 0
    while data := answer.read(2**20):
        read += len(data)
    sender.join()
    assert read == most
    client.close()


def fill(wire: Wire, most: int) -> int:
    """Send until nothing more is taken; bytes sent."""
    sent_bytes = 0
    wire.socket.settimeout(1)
    while sent_bytes < most:
        try:
            sent_bytes += wire.socket.send(b"x" * 65536)
        except TimeoutError:
            break
    wire.socket.settimeout(180)
    return sent_bytes


def test_many_requests_at_once_get_their_own_answers(spark: Spark) -> None:
    def ask(number: int) -> bytes:
        client = spark.client("model")
        messages = [{"role": "user", "content": str(number)}, {"role": "user", "content": "x"}]
        client.request("POST", CHAT, json.dumps({"messages": messages}))
        return client.getresponse().read()

    with ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(ask, number) for number in range(40)]
        # All of them wait at the engine before the first is answered.
        wires = [spark.accept("mistral") for _ in range(40)]
        for wire in wires:
            content = json.loads(wire.next_request().body)["messages"][0]["content"].encode()
            wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
        assert [answer.result() for answer in answers] == [
            b"%d\n\nx" % number for number in range(40)
        ]


def test_no_request_depends_on_a_connection_that_the_engine_may_close(spark: Spark) -> None:
    client = spark.client("model")
    for _ in range(2):
        client.request("GET", "/health")
        wire = spark.accept("mistral")
        wire.next_request()
        wire.send(OK)
        assert client.getresponse().read() == b"ok"
        assert wire.wait_until_closed()
    client.close()


def test_an_engine_that_gives_no_answer_is_a_502(spark: Spark) -> None:
    client = spark.client("model")
    client.request("GET", "/health")
    wire = spark.accept("mistral")
    wire.next_request()
    wire.socket.close()
    answer = client.getresponse()
    assert answer.status == 502
    assert "gave no answer" in json.loads(answer.read())["error"]["message"]


def test_a_stream_that_the_engine_breaks_off_is_seen_to_be_broken(spark: Spark) -> None:
    client, wire = begin_request(spark)
    wire.send(STREAM + chunk(b"data: 1\n\n"))
    answer = client.getresponse()
    assert answer.read1() == b"data: 1\n\n"
    wire.socket.close()
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def failed_answer(spark: Spark) -> tuple[http.client.HTTPResponse, dict]:
    client = spark.client("model")
    client.request("POST", CHAT, json.dumps({"messages": TWO}))
    answer = client.getresponse()
    return answer, json.loads(answer.read())["error"]


def test_a_model_that_is_not_hot_is_a_503_and_nobody_is_asked(spark: Spark) -> None:
    hot(spark, "qwen")
    answer, error = failed_answer(spark)
    assert (answer.status, error["message"]) == (503, "mistral is loading or down")
    spark.nobody_asked("mistral")


def test_a_unit_that_was_started_anew_is_looked_at_anew(spark: Spark) -> None:
    """systemd said that it was hot: that was another process's turn."""
    group = spark.paths.groups_of_units / "mistral.service"
    group.rename(group.with_name("gone"))
    group.mkdir()
    (group / "cgroup.events").write_text("populated 1\n")
    spark.systemd.unit("mistral.service", ActiveState="activating", SubState="start")
    spark.hot_model = None
    assert failed_answer(spark)[0].status == 503
    spark.nobody_asked("mistral")


def test_an_engine_that_does_not_listen_is_a_503_and_a_stop_waits_for_no_stream(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as spark:
        spark.heat("mistral")
        client, wire = begin_request(spark)
        wire.send(STREAM)
        client.getresponse()
        spark.engines["mistral"].close()
        answer, error = failed_answer(spark)
        assert (answer.status, answer.getheader("retry-after")) == (503, "5")
        assert error["code"] == 503 and "is loading or down" in error["message"]
        assert "Traceback" not in spark.stop()
        assert spark.process and spark.process.returncode in (0, -signal.SIGTERM)
        assert wire.wait_until_closed()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with (
        prepare_spark(tmp_path) as spark,
        socket.create_server(("127.0.0.1", own_port(spark))),
        notify_socket(tmp_path) as (notify, path),
        start(spark, path, {}) as process,
    ):
        output = process.communicate(timeout=180)[0]
        assert process.returncode == 1
        assert f"cannot listen at 127.0.0.1, port {own_port(spark)}" in output
        assert "Traceback" not in output
        notify.setblocking(False)
        with pytest.raises(BlockingIOError):
            notify.recv(64)


def test_nothing_is_left_open_after_all_that(spark: Spark) -> None:
    def connections() -> bool:
        assert spark.process
        folder = Path(f"/proc/{spark.process.pid}/fd")
        links = [str(entry.readlink()) for entry in folder.iterdir()]
        # The listening sockets of four listeners and the event loop's own pair.
        return len([link for link in links if link.startswith("socket:")]) <= 6

    until(connections, "connections of ended requests are closed")


def test_answers_do_not_wait_for_acknowledgements() -> None:
    [listener] = server.listening_sockets([ListenAddress("local", "127.0.0.1", free_port())])
    with listener as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
