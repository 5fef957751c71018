"""Requests that are meant to harm, on the wire: each is answered, and none is waited for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from gateway_process import CHAT, Spark, error, running

from lockstep.onhost.gateway.wire import json_value_replacement

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """A gateway that waits for no body that is not there at once."""
    with running(tmp_path_factory.mktemp("gateway"), patience_s=0.2) as gateway_host:
        yield gateway_host


def full_answer(spark: Spark, request: bytes, *, more: bool = True) -> bytes:
    """The bytes until the gateway closes. Without `more` the client says that it sends no more."""
    with spark.raw() as client:
        client.sendall(request)
        if not more:
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    return answer


def parsed_answer(spark: Spark, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body of the full answer."""
    head, _, body = full_answer(spark, request).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.lower().split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    "body_part",
    [
        b"content-length: 100\r\n\r\n{",
        b"content-length: 100\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_body_that_does_not_end_is_answered_and_its_connection_closed(
    spark: Spark, body_part: bytes
) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n".encode()
    status, headers, body = parsed_answer(spark, head + body_part)
    assert status.startswith("HTTP/1.1 408 ")
    assert headers["connection"] == "close"
    assert "the rest of the body did not come" in error(body)["message"]
    spark.nobody_asked()


@pytest.mark.parametrize("times", [1, 5])
def test_who_only_asks_and_sends_no_more_is_answered(spark: Spark, times: int) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert full_answer(spark, request * times, more=False).count(b"HTTP/1.1 200 ") == times


@pytest.mark.parametrize(
    "twice", ["host: localhost", "origin: http://localhost", "content-type: a"]
)
def test_who_a_request_is_for_is_said_once(spark: Spark, twice: str) -> None:
    lines = ["GET /v1/models HTTP/1.1", "host: localhost", twice, twice, "connection: close"]
    status, _, body = parsed_answer(spark, "\r\n".join([*lines, "", ""]).encode())
    assert status.startswith("HTTP/1.1 400 "), body


def test_an_object_has_a_bound_of_members(spark: Spark) -> None:
    """Members that count: wire/test_request_fields.py."""
    members = [f'"{number}": 0' for number in range(json_value_replacement.MEMBERS)]
    client = spark.client()
    client.request("POST", CHAT, "{" + ", ".join(['"model": "qwen"', *members]) + "}")
    answer = client.getresponse()
    assert answer.status == 400
    assert "more than 1,000 members" in error(answer.read())["message"]
    spark.nobody_asked()
