"""Other gateways: their models, and who is silent. Between processes: test_two_gateways.py."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from event_loop import in_event_loop

from lockstep.onhost.core import errors, layout
from lockstep.onhost.gateway import outgoing_connections, peer_gateways
from lockstep.onhost.gateway.configuration import (
    PEER_PERSON,
    PEER_ROLE,
    GatewayConfiguration,
    PeerGateway,
)
from lockstep.onhost.gateway.keys import Person
from lockstep.onhost.gateway.peer_gateways import Peers


def model(name: str, state: str = "hot", host: str = "spark2") -> dict[str, Any]:
    """A model in a gateway's list."""
    return {"id": name, "lockstep": {"state": state, "hot": state == "hot", "host": host}}


@pytest.fixture
def peers_of(monkeypatch):
    """Makes the peers of spark1 out of their lists; an exception refuses, None is silence."""

    def make(answers: dict[str, Any], requests: list[Any] | None = None) -> Peers:
        async def fetch(_: object, request: Any) -> dict[str, Any]:
            if requests is not None:
                requests.append(request)
            answer = answers[request.url.host]
            if answer is None:
                await asyncio.sleep(3600)
            if isinstance(answer, Exception):
                raise answer
            return {"data": answer}

        monkeypatch.setattr(outgoing_connections, "fetch_json_object", fetch)
        peers = tuple(PeerGateway(name, name, 8090) for name in answers)
        return Peers(GatewayConfiguration("spark1", (), peers=peers))

    return make


async def serving(peers: Peers, name: str, **more: bool) -> list[str]:
    return [peer.name for peer in await peers.gateways_serving(name, **more)]


@in_event_loop
async def test_of_others_with_one_model_the_hot_one_is_the_entry(peers_of):
    alias = model("auto")
    alias["lockstep"]["alias_of"] = "qwen"
    peers = peers_of({"spark2": [model("qwen", "cold")], "spark3": [alias, model("qwen")]})
    (entry, _) = await peers.models_with_peers([])
    assert entry["lockstep"]["host"] == "spark3"
    assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "cold", "hot": False}]
    assert await serving(peers, "qwen") == ["spark3"]
    assert await serving(peers, "qwen", cold=True) == ["spark3", "spark2"]
    assert await serving(peers, "another", cold=True) == []
    # By the model's own name, not an alias.
    assert await peers.hot_model_by_peer() == {"spark2": "", "spark3": "qwen"}


@in_event_loop
async def test_they_are_asked_seldom_and_after_a_failed_request_not_at_all(peers_of, monkeypatch):
    monkeypatch.setattr(peer_gateways, "FRESH_S", 3600.0)
    requests = []
    peers = peers_of({"spark2": [model("qwen")], "spark3": [model("qwen")]}, requests)
    for _ in range(5):
        first, second = await peers.gateways_serving("qwen")
    urls = [str(request.url) for request in requests]
    assert urls == [f"https://spark{n}:8090/v1/models" for n in (2, 3)]
    assert requests[0].headers[PEER_PERSON] == "spark1"
    peers.mark_failed(first)
    assert await peers.gateways_serving("qwen") == [second]


NO_MODEL = [{"id": "qwen", "lockstep": {"host": "spark2"}}]


@pytest.mark.parametrize("answer", [None, ValueError("it answers 500"), NO_MODEL])
@in_event_loop
async def test_one_without_an_answer_holds_nothing_up(peers_of, answer, capfd, monkeypatch):
    monkeypatch.setattr(peer_gateways, "FRESH_S", 0.0)
    monkeypatch.setattr(peer_gateways, "OLD_S", 0.0)
    lists = {"spark2": [model("qwen")], "spark3": [model("qwen")]}
    peers = peers_of(lists)
    assert await serving(peers, "qwen") == ["spark2", "spark3"]
    lists["spark2"] = answer
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 0.1)
    assert await serving(peers, "qwen", cold=True) == ["spark3"]
    # Its last word is too old to switch by.
    assert await peers.hot_model_by_peer() == {"spark2": None, "spark3": "qwen"}
    (entry,) = await peers.models_with_peers([])
    assert entry["lockstep"]["host"] == "spark3"
    assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "silent", "hot": False}]
    output = capfd.readouterr()
    assert "spark2 does not answer" in output.out + output.err


@in_event_loop
async def test_a_silent_one_is_not_waited_for_again_and_comes_back(peers_of, monkeypatch):
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 0.1)
    lists = {"spark2": None}
    peers = peers_of(lists)
    assert await serving(peers, "qwen") == []
    assert await peers.hot_model_by_peer() == {"spark2": None}
    monkeypatch.setattr(peer_gateways, "FRESH_S", 0.0)
    lists["spark2"] = [model("qwen")]
    while not await serving(peers, "qwen"):
        await asyncio.sleep(0)
    lists["spark2"] = None
    while await serving(peers, "qwen"):
        await asyncio.sleep(0.01)
    # Would wait an hour, if it waited.
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 3600.0)
    assert await serving(peers, "qwen") == []


def test_a_request_of_a_gateway_names_one_person_with_a_role():
    peers = Peers(GatewayConfiguration("spark1", ()))
    anna, bert = Person("anna", "operate"), Person("bert", "use")
    person, role = peers.forwarding_headers(anna)
    assert (person, role) == ((PEER_PERSON.encode(), b"anna"), (PEER_ROLE.encode(), b"operate"))
    assert peers.caller_of([person, role]) == anna
    assert peers.caller_of(peers.forwarding_headers(bert)) == bert
    for wrong in (
        [person],
        [person, (role[0], b"root")],
        [(person[0], b"a b"), role],
        [(person[0], b""), role],
        [person, role, (role[0], b"use")],
    ):
        assert peers.caller_of(wrong) is None


def test_without_its_certificate_a_gateway_with_peers_does_not_start(tmp_path):
    paths, alone = layout.Paths(tmp_path), GatewayConfiguration("spark1", ())
    assert peer_gateways.client_context(alone, paths) is None
    with_peer = replace(alone, peers=(PeerGateway("spark2", "127.0.0.1", 1),))
    with pytest.raises(errors.Problem, match=r"peer-gateway-spark1\.pem.*run the deploy"):
        peer_gateways.server_context(with_peer, paths)


def test_an_address_of_ipv6_is_an_url():
    url = peer_gateways.peer_url(PeerGateway("spark2", "fd00::2", 8090))
    assert url == "https://[fd00::2]:8090"
