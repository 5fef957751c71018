"""Switches that the program asks for: for a request of a cold model, and for an operator.

The switch does what a test says; the ordinary one is asked in test_switch_queue.py.
"""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest
from gateway_process import CHAT, OPERATE, STREAM, USE, Spark, error, hot, running
from raw_engine import LIMIT_S, chunk

pytestmark = pytest.mark.slow
SETTINGS = {"swap_on_request": True, "least_hot_s": 0.0, "keepalive_s": 0.2}

STOPPING = {"phase": "stop", "line": "stopping qwen"}
LOCKED = {"code": 75, "said": "ben is switching to safe since 3 s (process 7)"}
FAILED = {"code": 1, "said": "the switch to mistral FAILED; qwen is hot again"}


@contextlib.contextmanager
def switching(spark: Spark) -> Iterator[socket.socket]:
    """The socket that systemd holds for switches of this host's gateway."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(spark.switch))
        listening.listen()
        listening.settimeout(LIMIT_S)
        yield listening


@pytest.fixture(scope="module")
def switch(spark):
    with switching(spark) as listening:
        yield listening


def is_asked(switch: socket.socket, model: str, person: str, *messages: dict[str, object]) -> None:
    """Wait until the gateway asks for this switch, and send it these lines and the end."""
    connection, _ = switch.accept()
    with connection, connection.makefile("rb") as lines:
        assert json.loads(lines.readline()) == {"model": model, "person": person}
        for message in messages:
            connection.sendall(json.dumps(message).encode() + b"\n")


def chat_body(model: str, **more: object) -> bytes:
    return json.dumps({"model": model, "messages": [], **more}).encode()


def test_a_stream_is_kept_while_its_model_is_switched_to(spark, switch):
    hot(spark, None)
    client = spark.client("open")
    client.request("POST", CHAT, chat_body("mistral", stream=True), USE)
    answer = client.getresponse()
    assert (answer.status, answer.readline()) == (200, b": waiting\n")
    spark.heat("mistral")
    is_asked(switch, "mistral", "anna", STOPPING, {"code": 0, "said": "mistral is hot"})
    wire = spark.accept("mistral")
    assert json.loads(wire.next_request().body)["model"] == "mistralai/M"
    wire.send(STREAM + chunk(b"data: one\n\n") + b"0\r\n\r\n")
    # The rest of the first comment, and perhaps others.
    assert answer.read().replace(b": waiting\n\n", b"") == b"\ndata: one\n\n"
    client.close()


def test_who_waits_for_a_switch_that_fails_is_told_its_reason(spark, switch):
    hot(spark, None)
    why = "MemAvailable is 20 GiB, and 61 GiB are needed: nothing was stopped"
    with contextlib.closing(spark.client()) as stream, contextlib.closing(spark.client()) as whole:
        stream.request("POST", CHAT, chat_body("qwen", stream=True))
        stream_answer = stream.getresponse()
        assert stream_answer.readline() == b": waiting\n"
        whole.request("POST", CHAT, chat_body("qwen"))
        is_asked(switch, "qwen", "local", {"code": 1, "said": why})
        event = stream_answer.read().rpartition(b"data: ")[2]
        assert f"qwen is cold; the switch to qwen failed: {why}" in error(event)["message"]
        answer = whole.getresponse()
        assert answer.status == 503 and int(answer.getheader("retry-after") or 0) > 0
        assert why in error(answer.read())["message"]
    spark.nobody_asked()


@pytest.mark.parametrize("messages", [(STOPPING, FAILED), (STOPPING, LOCKED)])
def test_an_operator_reads_the_lines_and_the_end(spark, switch, messages):
    with contextlib.closing(spark.client()) as client:
        client.request("POST", "/switch", b'{"model": "mistral"}', OPERATE)
        is_asked(switch, "mistral", "boss", *messages)
        lines = client.getresponse().read().splitlines()
    assert [json.loads(line[6:]) for line in lines if line[:6] == b"data: "] == list(messages)


def test_while_somebody_switches_an_operator_is_refused_with_their_name(tmp_path):
    """Before the first comment of a stream, which comes late here."""
    with running(tmp_path) as spark, switching(spark) as switch:
        client = spark.client()
        client.request("POST", "/switch", b'{"model": "mistral"}', OPERATE)
        is_asked(switch, "mistral", "boss", LOCKED)
        answer = client.getresponse()
        assert (answer.status, error(answer.read())["message"]) == (409, LOCKED["said"])
