"""Two gateways as processes: a request goes where its model is hot, once, and byte for byte."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from an_identity import give_identity
from gateway_process import KEYS, MODELS, Spark, running
from lab_servers import free_port
from raw_engine import LIMIT_S, chunk

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import layout
from lockstep.onhost.gateway.configuration import (
    PEER_PERSON,
    PEER_ROLE,
    ListenAddress,
    PeerGateway,
)

pytestmark = pytest.mark.slow


@dataclass
class Pair:
    """spark1, which clients ask, and spark2."""

    first: Spark
    two: Spark
    identities: layout.Paths


def listeners(folder: Path) -> tuple[ListenAddress, ...]:
    """The listen addresses of one gateway; that of peers is at the port of all other addresses."""
    port = free_port()
    return (
        ListenAddress("local", "127.0.0.1", free_port()),
        ListenAddress("open", "0.0.0.0", port),
        ListenAddress("peers", "127.0.0.3", port),
        ListenAddress("tls", str(folder / "tls.sock")),
        ListenAddress("model", "127.0.0.1", free_port(), ("mistral", "safe")),
    )


def peer(name: str, of: tuple[ListenAddress, ...]) -> PeerGateway:
    listener = next(candidate for candidate in of if candidate.kind == "peers")
    return PeerGateway(name, listener.address, listener.port)


def credentials(paths: layout.Paths, host: str) -> dict[str, str]:
    """Give a host its identities; return what lets its gateway read them, as systemd does."""
    folder = paths.root / host
    folder.mkdir(parents=True)
    for role in (peer_tls.GATEWAY, peer_tls.AGENT):
        give_identity(paths, host, role)
        identity = paths.secrets / peer_tls.identity_file_name(role, host)
        (folder / peer_tls.credential_name(role)).write_text(identity.read_text())
    return {"CREDENTIALS_DIRECTORY": str(folder)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both gateways, each with the other as its peer."""
    folder = tmp_path_factory.mktemp("pair")
    paths = layout.Paths(folder / "identities")
    environment = {host: credentials(paths, host) for host in ("spark1", "spark2", "spark3")}
    for name in ("one", "two"):
        (folder / name).mkdir()
    first, second = listeners(folder / "one"), listeners(folder / "two")
    with (
        running(
            folder / "two",
            environment["spark2"],
            host="spark2",
            listeners=second,
            models={"qwen": {"aliases": ("theirs",)}},
            # The other's port is where nobody else listens.
            peers=(peer("spark1", first),),
        ) as two,
        running(
            folder / "one",
            environment["spark1"],
            host="spark1",
            listeners=first,
            peers=(peer("spark2", second),),
        ) as first_spark,
    ):
        yield Pair(first_spark, two, paths)


@pytest.fixture(autouse=True)
def hot(pair: Pair) -> None:
    """Mistral at spark1, Qwen at spark2."""
    pair.first.heat("mistral")
    pair.two.heat("qwen")
    until(pair, lambda states: any(peer["hot"] for peer in states["qwen"].get("peers", ())))


def until(pair: Pair, is_settled: Any) -> dict[str, Any]:
    """The list of spark1, once a check accepts it: readings are a second or two old."""
    while True:
        client = pair.first.client()
        client.request("GET", "/v1/models")
        data = json.loads(client.getresponse().read())["data"]
        states = {model["id"]: model["lockstep"] for model in data}
        if is_settled(states):
            return states
        time.sleep(0.05)


def send_request(client: HTTPConnection, model: str = "qwen", **headers: str) -> None:
    """A request for a stream of a model."""
    body = json.dumps({"model": model, "stream": True, "messages": []})
    client.request(
        "POST", "/v1/chat/completions", body, {"content-type": "application/json", **headers}
    )


def streaming(pair: Pair, **headers: str) -> tuple[HTTPResponse, Any, Any]:
    """An answer that has begun at spark2's engine: its reader, the engine's wire, the request."""
    client = pair.first.client("open" if headers else "local")
    send_request(client, **headers)
    engine = pair.two.accept("qwen")
    request = engine.next_request()
    engine.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
    engine.send(b"transfer-encoding: chunked\r\n\r\n" + chunk(b"data: one\n\n"))
    answer = client.getresponse()
    assert answer.status == 200 and answer.read1(64) == b"data: one\n\n"
    return answer, engine, request


def test_a_stream_of_a_model_that_is_hot_there_comes_from_there(pair: Pair) -> None:
    bearer = {"authorization": f"Bearer {KEYS['use']}", "x-lockstep-role": "operate"}
    answer, engine, request = streaming(pair, **bearer)
    assert json.loads(request.body)["model"] == MODELS["qwen"]
    # No key and nothing of ours reaches an engine.
    text = repr(request)
    assert KEYS["use"] not in text and "lockstep" not in text.lower()
    engine.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    assert answer.read() == b"data: [DONE]\n\n"
    pair.first.nobody_asked("qwen")


def test_a_model_that_is_hot_here_stays_here(pair: Pair) -> None:
    client = pair.first.client()
    send_request(client, "mistral")
    engine = pair.first.accept("mistral")
    assert json.loads(engine.next_request().body)["model"] == MODELS["mistral"]
    engine.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    assert client.getresponse().read() == b"ok"


def test_a_client_that_leaves_ends_the_work_there(pair: Pair) -> None:
    answer, engine, _ = streaming(pair)
    answer.close()
    assert engine.wait_until_closed()


def test_both_list_the_models_of_both_and_neither_asks_on(pair: Pair) -> None:
    states = until(pair, lambda _: True)
    assert states["qwen"]["host"] == "spark1" and not states["qwen"]["hot"]
    assert states["qwen"]["peers"] == [{"host": "spark2", "state": "hot", "hot": True}]
    answer = by_peer(pair, "GET", "/v1/models")
    data = json.loads(answer.read())["data"]
    assert {model["lockstep"]["host"] for model in data} == {"spark2"}
    assert not any("peers" in model["lockstep"] for model in data)


def peer_client(pair: Pair, host: str = "spark1", role: str = peer_tls.GATEWAY) -> HTTPSConnection:
    """A connection to spark2's listener for peers, with the certificate of a host's role."""
    identity = pair.identities.secrets / peer_tls.identity_file_name(role, host)
    listener = pair.two.listener("peers")
    context = peer_tls.make_context(identity, is_server=False)
    return HTTPSConnection(listener.address, listener.port, context=context, timeout=LIMIT_S)


def by_peer(pair: Pair, method: str, path: str, body: str = "", **changes: str) -> HTTPResponse:
    """The answer of spark2's listener for peers."""
    headers = {PEER_PERSON: "anna", PEER_ROLE: "use", **changes}
    client = peer_client(pair)
    client.request(method, path, body, {"content-type": "application/json", **headers})
    return client.getresponse()


def test_what_came_from_a_gateway_goes_to_no_third_one(pair: Pair) -> None:
    body = json.dumps({"model": "mistral", "messages": []})
    answer = by_peer(pair, "POST", "/v1/chat/completions", body)
    assert answer.status == 503
    pair.first.nobody_asked("mistral")


@pytest.mark.parametrize(
    ("host", "role"), [("spark3", peer_tls.GATEWAY), ("spark1", peer_tls.AGENT)]
)
def test_who_is_no_gateway_of_a_peer_gets_no_answer(pair: Pair, host: str, role: str) -> None:
    headers = {PEER_PERSON: "anna", PEER_ROLE: "operate"}
    with pytest.raises((ssl.SSLError, ConnectionError)):
        client = peer_client(pair, host, role)
        client.request("GET", "/v1/models", headers=headers)
        client.getresponse()


def test_without_a_certificate_the_listener_for_peers_is_closed(pair: Pair) -> None:
    key = {"authorization": f"Bearer {KEYS['operate']}"}
    listener = pair.two.listener("peers")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for client in (
        pair.two.client("peers"),
        HTTPSConnection(listener.address, listener.port, context=context, timeout=LIMIT_S),
    ):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.request("GET", "/v1/models", headers=key)
            client.getresponse()


def test_a_person_s_key_names_nobody_there(pair: Pair) -> None:
    client = peer_client(pair)
    client.request("GET", "/v1/models", headers={"authorization": f"Bearer {KEYS['operate']}"})
    assert client.getresponse().status == 400


def test_the_page_has_the_facts_of_both(pair: Pair) -> None:
    peer = {"fault": "not asked"}
    # Its first answer may take longer than this one is held up for.
    while "fault" in peer:
        time.sleep(0.05)
        client = pair.first.client()
        client.request("GET", "/status")
        (peer,) = json.loads(client.getresponse().read())["peers"].values()
    assert peer["models"] and "peers" not in peer


def test_the_certificate_of_the_authority_is_for_everybody(pair: Pair) -> None:
    client = pair.first.client("open")
    client.request("GET", "/root.crt")
    answer = client.getresponse()
    assert answer.status == 404 and b"no authority" in answer.read()
    pair.first.paths.authority.write_text("the certificate")
    client = pair.first.client("open")
    client.request("GET", "/root.crt")
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"the certificate")
    assert answer.getheader("content-type") == "application/x-x509-ca-cert"


def test_one_that_is_gone_is_refused_with_its_name(pair: Pair) -> None:
    """The last test of this module: from here on spark2 is gone."""
    assert pair.two.process is not None
    pair.two.process.kill()
    pair.two.process.wait()
    # By its last word the model is still hot there.
    client = pair.first.client()
    send_request(client, "qwen")
    answer = client.getresponse()
    assert answer.status == 503
    assert "qwen is cold" in answer.read().decode()
    # Silent or not, what only spark2 has is no unknown model.
    for _ in range(2):
        send_request(client, "theirs")
        answer = client.getresponse()
        assert answer.status == 502
        assert "spark2, which has the model, does not answer" in answer.read().decode()
