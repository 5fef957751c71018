"""Requests that are meant to harm, on the wire: each is answered, and none is waited for."""

from __future__ import annotations

import socket

import pytest
from gateway_process import CHAT, Spark, error

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


@pytest.mark.parametrize(
    "body_part",
    [
        b"content-length: 100\r\n\r\n{",
        b"content-length: 100\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_body_that_does_not_end_is_answered_and_its_connection_closed(spark, body_part):
    request = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n".encode() + body_part
    head, _, body = full_answer(spark, request).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close" in head.lower()
    assert "the rest of the body did not come" in error(body)["message"]
    spark.nobody_asked()


@pytest.mark.parametrize("times", [1, 5])
def test_who_only_asks_and_sends_no_more_is_answered(spark, times):
    request = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert full_answer(spark, request * times, more=False).count(b"HTTP/1.1 200 ") == times


@pytest.mark.parametrize(
    "twice", [b"host: localhost", b"origin: http://localhost", b"content-type: a"]
)
def test_who_a_request_is_for_is_said_once(spark, twice):
    lines = (b"GET /v1/models HTTP/1.1", b"host: localhost", twice, twice, b"connection: close")
    assert full_answer(spark, b"\r\n".join([*lines, b"", b""])).startswith(b"HTTP/1.1 400 ")
