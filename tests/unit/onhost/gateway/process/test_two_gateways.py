"""Two gateways as processes: a request goes where its model is hot, once, and byte for byte."""

import json
import ssl
from contextlib import AbstractContextManager
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from an_identity import give_identity
from event_loop import in_event_loop
from gateway_process import CHAT, KEYS, MODELS, STREAM, Spark, ask, running
from lab_servers import free_port, until
from raw_engine import LIMIT_S, chunk

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import layout
from lockstep.onhost.gateway.configuration import (
    PEER_PERSON,
    PEER_ROLE,
    GatewayConfiguration,
    ListenAddress,
    PeerGateway,
)
from lockstep.onhost.gateway.peer_gateways import Peers, client_context

pytestmark = pytest.mark.slow
KEY = {"authorization": f"Bearer {KEYS['operate']}"}


def listeners(folder: Path) -> tuple[ListenAddress, ...]:
    """The listen addresses of one gateway; that of peers is at the port of all other addresses."""
    folder.mkdir()
    port = free_port()
    return (
        ListenAddress("local", "127.0.0.1", free_port()),
        ListenAddress("open", "0.0.0.0", port),
        ListenAddress("peers", "127.0.0.3", port),
        ListenAddress("tls", str(folder / "tls.sock")),
        ListenAddress("model", "127.0.0.1", free_port(), ("mistral", "safe")),
    )


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
def pair(tmp_path_factory):
    """spark1, which clients ask, and spark2, each with the other as its peer."""
    folder = tmp_path_factory.mktemp("pair")
    paths = layout.Paths(folder / "identities")
    credentials(paths, "spark3")
    places = {name: folder / name for name in ("spark1", "spark2")}
    addresses = {name: listeners(place) for name, place in places.items()}

    def gateway(name: str, peer: str, **more: object) -> AbstractContextManager[Spark]:
        (at,) = (listener for listener in addresses[peer] if listener.kind == "peers")
        more |= {"host": name, "listeners": addresses[name]}
        more["peers"] = (PeerGateway(peer, at.address, at.port),)
        return running(places[name], credentials(paths, name), **more)

    models = {"qwen": {"aliases": ("theirs",)}}
    with gateway("spark2", "spark1", models=models) as two, gateway("spark1", "spark2") as first:
        yield SimpleNamespace(first=first, two=two, identities=paths)


def listed_states(pair: Any) -> dict[str, Any]:
    """The list of spark1; readings are a second or two old."""
    data = json.loads(ask(pair.first, "GET", "/v1/models")[1])["data"]
    return {model["id"]: model["lockstep"] for model in data}


@pytest.fixture(autouse=True)
def hot(pair):
    """Mistral at spark1, Qwen at spark2."""
    pair.first.heat("mistral")
    pair.two.heat("qwen")

    def is_known() -> bool:
        return any(peer["hot"] for peer in listed_states(pair)["qwen"].get("peers", ()))

    until(is_known, "qwen is known to be hot there")


def streaming(pair: Any, **headers: str) -> tuple[HTTPResponse, Any, Any]:
    """An answer that has begun at spark2's engine: its reader, the engine's wire, the request."""
    client = pair.first.client("open" if headers else "local")
    client.request("POST", CHAT, b'{"model": "qwen", "stream": true, "messages": []}', headers)
    engine = pair.two.accept("qwen")
    request = engine.next_request()
    engine.send(STREAM + chunk(b"data: one\n\n"))
    answer = client.getresponse()
    assert answer.status == 200 and answer.read1(64) == b"data: one\n\n"
    return answer, engine, request


def test_a_stream_of_a_model_that_is_hot_there_comes_from_there(pair):
    bearer = {"authorization": f"Bearer {KEYS['use']}", "x-lockstep-role": "operate"}
    answer, engine, request = streaming(pair, **bearer)
    assert json.loads(request.body)["model"] == MODELS["qwen"]
    # No key and nothing of ours reaches an engine.
    text = repr(request)
    assert KEYS["use"] not in text and "lockstep" not in text.lower()
    engine.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    assert answer.read() == b"data: [DONE]\n\n"
    pair.first.nobody_asked("qwen")
    # A client that leaves ends the work there.
    answer, engine, _ = streaming(pair)
    answer.close()
    assert engine.wait_until_closed()


def test_both_list_the_models_of_both_and_neither_asks_on(pair):
    states = listed_states(pair)
    assert states["qwen"]["host"] == "spark1" and not states["qwen"]["hot"]
    assert states["qwen"]["peers"] == [{"host": "spark2", "state": "hot", "hot": True}]
    assert states["mistral"]["hot"] and not states["mistral"]["peers"][0]["hot"]
    assert states["theirs"]["host"] == "spark2" and "peers" not in states["theirs"]
    answer = by_peer(pair, "GET", "/v1/models")
    data = json.loads(answer.read())["data"]
    assert {model["lockstep"]["host"] for model in data} == {"spark2"}
    assert not any("peers" in model["lockstep"] for model in data)


def peer_client(pair: Any, host: str = "spark1", role: str = peer_tls.GATEWAY) -> HTTPSConnection:
    """A connection to spark2's listener for peers, with the certificate of a host's role."""
    identity = pair.identities.secrets / peer_tls.identity_file_name(role, host)
    listener = pair.two.listener("peers")
    context = peer_tls.make_context(identity, is_server=False)
    return HTTPSConnection(listener.address, listener.port, context=context, timeout=LIMIT_S)


def by_peer(pair: Any, method: str, path: str, body: str = "") -> HTTPResponse:
    """The answer of spark2's listener for peers."""
    client = peer_client(pair)
    client.request(method, path, body, {PEER_PERSON: "anna", PEER_ROLE: "use"})
    return client.getresponse()


def test_what_came_from_a_gateway_goes_to_no_third_one(pair):
    body = json.dumps({"model": "mistral", "messages": []})
    assert by_peer(pair, "POST", CHAT, body).status == 503
    pair.first.nobody_asked("mistral")


def test_who_is_no_gateway_of_a_peer_gets_no_answer(pair):
    """Nor does a person, whatever the key."""
    headers = {PEER_PERSON: "anna", PEER_ROLE: "operate", **KEY}
    listener = pair.two.listener("peers")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for connect in (
        lambda: peer_client(pair, "spark3"),
        lambda: peer_client(pair, "spark1", peer_tls.AGENT),
        lambda: pair.two.client("peers"),
        lambda: HTTPSConnection(listener.address, listener.port, context=context, timeout=LIMIT_S),
    ):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client = connect()
            client.request("GET", "/v1/models", headers=headers)
            client.getresponse()
    client = peer_client(pair)
    client.request("GET", "/v1/models", headers=KEY)
    assert client.getresponse().status == 400


@in_event_loop
async def test_one_with_the_certificate_of_another_host_is_sent_nothing(pair, capfd):
    listener = pair.two.listener("peers")
    impostor = PeerGateway("spark3", listener.address, listener.port)
    gateway = GatewayConfiguration("spark1", (), peers=(impostor,))
    peers = Peers(gateway, client_context(gateway, pair.identities))
    assert await peers.gateways_serving("qwen") == []
    expected = "expected lockstep:gateway:spark3, found lockstep:gateway:spark2"
    assert expected in " ".join(capfd.readouterr())


def test_the_page_has_the_facts_of_both(pair):
    def facts_of_peer() -> dict[str, Any]:
        (peer,) = json.loads(ask(pair.first, "GET", "/status")[1])["peers"].values()
        return peer

    # Its first answer may take longer than this one is held up for.
    until(lambda: "fault" not in facts_of_peer(), "spark2 has answered")
    assert facts_of_peer()["models"] and "peers" not in facts_of_peer()


def test_the_certificate_of_the_authority_is_for_everybody(pair):
    answer, body = ask(pair.first, "GET", "/root.crt", listener="open")
    assert answer.status == 404 and b"no authority" in body
    pair.first.paths.authority.write_text("the certificate")
    answer, body = ask(pair.first, "GET", "/root.crt", listener="open")
    assert (answer.status, body) == (200, b"the certificate")
    assert answer.getheader("content-type") == "application/x-x509-ca-cert"


def test_one_that_is_gone_is_refused_with_its_name(pair):
    """The last test of this module: from here on spark2 is gone."""
    assert pair.two.process is not None
    pair.two.process.kill()
    pair.two.process.wait()
    # By its last word the model is still hot there. Silent or not, what only spark2 has is no
    # unknown model.
    no_answer = (502, "spark2, which has the model, does not answer")
    refusals = (("qwen", 503, "qwen is cold"), ("theirs", *no_answer), ("theirs", *no_answer))
    for model, status, words in refusals:
        answer, body = ask(pair.first, "POST", CHAT, {"model": model, "messages": []})
        assert answer.status == status and words in body.decode()
