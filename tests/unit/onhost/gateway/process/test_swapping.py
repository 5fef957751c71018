"""Switches that the program asks for: for a request of a cold model, and for an operator.

The switch does what a test says; the ordinary one is asked in test_swap.py.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gateway_process import CHAT, OPERATE, STREAM, USE, Spark, error, hot, running
from raw_engine import LIMIT_S, chunk

pytestmark = pytest.mark.slow

STOPPING = {"phase": "stop", "line": "stopping qwen"}
LOCKED = {"code": 75, "said": "ben is switching to safe since 3 s (process 7)"}
FAILED = {"code": 1, "said": "the switch to mistral FAILED; qwen is hot again"}


@dataclass
class Switch:
    """Who switches for the gateway."""

    listening: socket.socket

    def is_asked(self, target: str, person: str, *told: dict[str, object]) -> None:
        """Wait until the gateway asks for this, and tell it these lines and the end."""
        connection, _ = self.listening.accept()
        with connection, connection.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"target": target, "person": person}
            for message in told:
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


@contextlib.contextmanager
def switching(spark: Spark) -> Iterator[Switch]:
    """What systemd has for the gateway of this host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(spark.switch))
        listening.listen()
        listening.settimeout(LIMIT_S)
        yield Switch(listening)


@pytest.fixture(scope="module")
def switch(spark: Spark) -> Iterator[Switch]:
    with switching(spark) as found:
        yield found


def asked(model: str, **more: object) -> bytes:
    return json.dumps({"model": model, "messages": [], **more}).encode()


def test_a_stream_is_kept_while_its_model_is_switched_to(spark: Spark, switch: Switch) -> None:
    hot(spark, None)
    client = spark.client("open")
    client.request("POST", CHAT, asked("mistral", stream=True), USE)
    answer = client.getresponse()
    assert (answer.status, answer.readline()) == (200, b": waiting\n")
    spark.heat("mistral")
    switch.is_asked("mistral", "anna", STOPPING, {"code": 0, "said": "mistral is hot"})
    wire = spark.accept("mistral")
    assert json.loads(wire.asked().body)["model"] == "mistralai/M"
    wire.send(STREAM + chunk(b"data: one\n\n") + b"0\r\n\r\n")
    # The rest of the first comment, and perhaps others.
    assert answer.read().replace(b": waiting\n\n", b"") == b"\ndata: one\n\n"
    client.close()


def test_who_waits_for_a_switch_that_fails_is_told_its_reason(spark: Spark, switch: Switch) -> None:
    hot(spark, None)
    why = "MemAvailable is 20 GiB, and 61 GiB are needed: nothing was stopped"
    with contextlib.closing(spark.client()) as stream, contextlib.closing(spark.client()) as whole:
        stream.request("POST", CHAT, asked("qwen", stream=True))
        begun = stream.getresponse()
        assert begun.readline() == b": waiting\n"
        whole.request("POST", CHAT, asked("qwen"))
        switch.is_asked("qwen", "local", {"code": 1, "said": why})
        event = begun.read().rpartition(b"data: ")[2]
        assert f"qwen is cold; the switch to qwen failed: {why}" in error(event)["message"]
        answer = whole.getresponse()
        assert answer.status == 503 and int(answer.getheader("retry-after") or 0) > 0
        assert why in error(answer.read())["message"]
    switch.nobody_asks()
    spark.nobody_asked()


@pytest.mark.parametrize("told", [(STOPPING, FAILED), (STOPPING, LOCKED)])
def test_an_operator_reads_the_lines_and_the_end(
    spark: Spark, switch: Switch, told: tuple[dict[str, object], ...]
) -> None:
    with contextlib.closing(spark.client()) as client:
        client.request("POST", "/switch", b'{"target": "mistral"}', OPERATE)
        switch.is_asked("mistral", "boss", *told)
        events = client.getresponse().read().decode().split("\n\n")
        said = [json.loads(event.removeprefix("data: ")) for event in events if event[:1] == "d"]
    assert said == list(told)


def test_while_somebody_switches_an_operator_is_refused_with_their_name(tmp_path: Path) -> None:
    """Before the first comment of a stream, which comes late here."""
    with running(tmp_path) as spark, switching(spark) as switch:
        client = spark.client()
        client.request("POST", "/switch", b'{"target": "mistral"}', OPERATE)
        switch.is_asked("mistral", "boss", LOCKED)
        answer = client.getresponse()
        assert (answer.status, error(answer.read())["message"]) == (409, LOCKED["said"])
