"""Requests for a cold model at the program: they wait for the switch, and are answered or told.

The switch does what a test says; the ordinary one is asked in test_swap.py.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from gateway_process import CHAT, STREAM, USE, Spark, error, hot, running
from raw_engine import LIMIT_S, chunk

pytestmark = pytest.mark.slow


@dataclass
class Switch:
    """Who switches for the gateway."""

    listening: socket.socket

    def end(self, asked: dict[str, str], **words: object) -> None:
        """Wait until the gateway asks for this, and tell it lines and how it ended."""
        connection, _ = self.listening.accept()
        with connection, connection.makefile("rb") as lines:
            assert json.loads(lines.readline()) == asked
            for message in ({"phase": "check", "line": f"checking {asked['target']}"}, words):
                connection.sendall(json.dumps(message).encode() + b"\n")

    def nobody_asks(self) -> None:
        """Nobody asks for a switch."""
        self.listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            self.listening.accept()
        self.listening.settimeout(LIMIT_S)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    folder = tmp_path_factory.mktemp("gateway")
    with running(folder, swap_on_request=True, least_hot_s=0.0, keepalive_s=0.2) as found:
        yield found


@pytest.fixture(scope="module")
def switch(spark: Spark) -> Iterator[Switch]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(spark.switch))
        listening.listen()
        listening.settimeout(LIMIT_S)
        yield Switch(listening)


def asked(model: str, **more: object) -> bytes:
    return json.dumps({"model": model, "messages": [], **more}).encode()


def test_a_stream_is_kept_while_its_model_is_switched_to(spark: Spark, switch: Switch) -> None:
    hot(spark, None)
    client = spark.client("open")
    client.request("POST", CHAT, asked("mistral", stream=True), USE)
    answer = client.getresponse()
    assert (answer.status, answer.readline()) == (200, b": waiting\n")
    spark.heat("mistral")
    switch.end({"target": "mistral", "person": "anna"}, code=0, said="mistral is hot")
    wire = spark.accept("mistral")
    assert json.loads(wire.asked().body)["model"] == "mistralai/M"
    wire.send(STREAM + chunk(b"data: one\n\n") + b"0\r\n\r\n")
    assert answer.read().endswith(b": waiting\n\ndata: one\n\n")
    client.close()


def test_who_waits_for_a_switch_that_fails_is_told_its_reason(spark: Spark, switch: Switch) -> None:
    hot(spark, None)
    why = "MemAvailable is 20 GiB, and 61 GiB are needed: nothing was stopped"
    with contextlib.closing(spark.client()) as stream, contextlib.closing(spark.client()) as whole:
        stream.request("POST", CHAT, asked("qwen", stream=True))
        begun = stream.getresponse()
        assert begun.readline() == b": waiting\n"
        whole.request("POST", CHAT, asked("qwen"))
        switch.end({"target": "qwen", "person": "local"}, code=1, said=why)
        event = begun.read().rpartition(b"data: ")[2]
        assert f"qwen is cold; the switch to qwen failed: {why}" in error(event)["message"]
        answer = whole.getresponse()
        assert answer.status == 503 and int(answer.getheader("retry-after") or 0) > 0
        assert why in error(answer.read())["message"]
    switch.nobody_asks()
    spark.nobody_asked()


def test_no_traceback_was_said(spark: Spark) -> None:
    """The last test of this module: of all that was asked before."""
    assert "Traceback" not in spark.stop()
