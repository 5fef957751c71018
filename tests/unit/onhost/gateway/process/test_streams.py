"""The gateway on the wire: streams that take long to begin, and their errors."""

import json

import pytest
from gateway_process import CHAT, OK, STREAM, begin, send
from raw_engine import chunk, reply


def test_a_client_is_kept_while_the_engine_thinks_and_no_comment_comes_into_an_event(spark):
    client, wire = begin(spark)
    answer = client.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    assert answer.readline() + answer.readline() == b": waiting\n\n"
    wire.send(STREAM)
    assert answer.readline() + answer.readline() == b": waiting\n\n"
    wire.send(chunk(b"data: 1\n"))
    while (line := answer.readline()) in (b": waiting\n", b"\n"):
        pass
    assert line == b"data: 1\n"
    # Three times as long as between two comments.
    wire.socket.settimeout(0.6)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    wire.send(chunk(b"\n") + chunk(b"data: 2\n\n") + b"0\r\n\r\n")
    assert answer.read() == b"\ndata: 2\n\n"
    client.close()


ERROR = [b"event: error", b"data: "]


@pytest.mark.parametrize(
    ("path", "lines"), [(CHAT, [b"data: "]), ("/v1/messages", ERROR), ("/v1/responses", ERROR)]
)
def test_an_error_after_the_first_comment_is_an_event(spark, path, lines):
    client, wire = begin(spark, path)
    answer = client.getresponse()
    body = b'{"error": {"message": "too long a prompt"}}'
    wire.send(reply(body, "400 Bad"))
    event = answer.read().rpartition(b": waiting\n\n")[2].rstrip(b"\n").split(b"\n")
    assert [line.partition(b"{")[0] for line in event] == lines
    document = json.loads(event[-1].removeprefix(b"data: "))
    assert document["error"]["message"] == "too long a prompt"
    if path != CHAT:
        assert document["type"] == "error"
    # So is the end of an engine before its stream began.
    client, wire = begin(spark, path)
    answer = client.getresponse()
    wire.socket.close()
    assert b"gave no answer" in answer.read()


@pytest.mark.parametrize("stream", [True, False])
def test_who_hangs_up_with_a_second_request_in_line_ends_the_first_one(spark, stream):
    """uvicorn knows one request of a connection that is gone: the last one it has read."""
    body = json.dumps({"model": "qwen", "stream": stream}).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    text = head % (CHAT.encode(), len(body)) + body
    with spark.raw() as client:
        client.sendall(text + text)
        wire = spark.accept()
        wire.next_request()
    assert wire.wait_until_closed()
    spark.nobody_asked()


def test_what_is_no_stream_gets_no_comment_and_may_be_compressed(spark):
    for is_stream, encodings in ((True, []), (False, ["gzip"])):
        body = {"model": "qwen", "stream": is_stream}
        client, wire, request = send(spark, body, headers={"Accept-Encoding": "gzip"})
        assert request.get("accept-encoding") == encodings
    wire.socket.settimeout(0.6)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    wire.send(OK)
    assert client.getresponse().read() == b"ok"
