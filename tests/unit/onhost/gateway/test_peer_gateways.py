"""Other gateways: their models, who is silent, and the certificates by which they are known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from an_identity import give_identity
from event_loop import in_event_loop

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import errors, layout
from lockstep.onhost.gateway import peer_gateways
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


@dataclass
class StandInPeer:
    """Another gateway: its list, and the requests to it; `silent` takes requests only."""

    models: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    silent: bool = False
    requests: list[str] = field(default_factory=list)
    #: The host whose certificate it shows; "" for the one at its place.
    certificate: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.silent:
            await reader.read()
        else:
            body = json.dumps({"data": self.models}).encode()
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        writer.close()


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> layout.Paths:
    """The paths of a host that has everybody's certificates."""
    paths = layout.Paths(tmp_path_factory.mktemp("identities"))
    for host in ("spark1", "spark2", "spark3"):
        give_identity(paths, host, peer_tls.GATEWAY)
    return paths


@asynccontextmanager
async def peers_of(identities: layout.Paths, *stand_ins: StandInPeer) -> AsyncIterator[Peers]:
    """The peers of spark1, which are spark2, spark3 …"""
    with ExitStack() as stack:
        gateways = []
        for n, peer in enumerate(stand_ins, 2):
            place = PeerGateway(f"spark{n}", f"127.0.0.{n}", 0)
            own_gateway = GatewayConfiguration(peer.certificate or place.name, (), peers=(place,))
            tls = peer_gateways.server_context(own_gateway, identities)
            server = await asyncio.start_server(peer.answer, place.address, 0, ssl=tls)
            stack.callback(server.close)
            gateways.append(replace(place, port=server.sockets[0].getsockname()[1]))
        own = GatewayConfiguration("spark1", (), peers=tuple(gateways))
        yield Peers(own, peer_gateways.client_context(own, identities))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only bounds a hang.
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 180.0)


async def serving(peers: Peers, name: str, **more: bool) -> list[str]:
    return [peer.name for peer in await peers.gateways_serving(name, **more)]


@in_event_loop
async def test_the_models_of_others_are_listed_once_with_their_host(identities):
    peer = StandInPeer([model("qwen"), model("mistral", "cold"), model("only-there", "cold")])
    async with peers_of(identities, peer) as asked_peers:
        own = [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]
        listed_models = await asked_peers.models_with_peers(own)
        models = {entry["id"]: entry["lockstep"] for entry in listed_models}
        peer_state = {"host": "spark2", "state": "hot", "hot": True}
        assert models["qwen"] == own[0]["lockstep"] | {"peers": [peer_state]}
        assert models["mistral"]["hot"] and not models["mistral"]["peers"][0]["hot"]
        assert models["only-there"] == {"state": "cold", "hot": False, "host": "spark2"}
        assert own == [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]


@in_event_loop
async def test_of_others_with_one_model_the_hot_one_is_the_entry(identities):
    alias = model("auto")
    alias["lockstep"]["alias_of"] = "qwen"
    async with peers_of(
        identities, StandInPeer([model("qwen", "cold")]), StandInPeer([alias, model("qwen")])
    ) as asked_peers:
        (entry, _) = await asked_peers.models_with_peers([])
        assert entry["lockstep"]["host"] == "spark3"
        assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "cold", "hot": False}]
        assert await serving(asked_peers, "qwen") == ["spark3"]
        assert await serving(asked_peers, "qwen", cold=True) == ["spark3", "spark2"]
        assert await asked_peers.gateways_serving("another", cold=True) == []
        # By the model's own name, not an alias.
        assert await asked_peers.hot_model_by_peer() == {"spark2": "", "spark3": "qwen"}


@in_event_loop
async def test_they_are_asked_seldom_and_after_a_failed_request_none_is_sent_there(
    identities, monkeypatch
):
    monkeypatch.setattr(peer_gateways, "FRESH_S", 3600.0)
    peer = StandInPeer([model("qwen")])
    async with peers_of(identities, peer, StandInPeer([model("qwen")])) as asked_peers:
        for _ in range(5):
            first, second = await asked_peers.gateways_serving("qwen")
        (request,) = peer.requests
        assert request.startswith("GET /v1/models ")
        assert f"{PEER_PERSON}: spark1" in request
        asked_peers.mark_failed(first)
        assert await asked_peers.gateways_serving("qwen") == [second]


@pytest.mark.parametrize("fault", ["silent", "refuses", "nonsense"])
@in_event_loop
async def test_one_that_gives_no_answer_holds_nothing_and_is_named(
    identities, fault, capfd, monkeypatch
):
    peer, other_peer = StandInPeer([model("qwen")]), StandInPeer([model("qwen")])
    async with peers_of(identities, peer, other_peer) as asked_peers:
        assert await serving(asked_peers, "qwen") == ["spark2", "spark3"]
        if fault == "silent":
            monkeypatch.setattr(peer_gateways, "ANSWER_S", 2.0)
            peer.silent = True
        elif fault == "refuses":
            peer.status = 500
        else:
            peer.models = [{"id": "qwen", "lockstep": {"host": "spark2"}}]
        for value in asked_peers._states.values():
            value.last_asked = float("-inf")
        assert await serving(asked_peers, "qwen", cold=True) == ["spark3"]
        # Its last word is too old to switch by.
        assert await asked_peers.hot_model_by_peer() == {"spark2": None, "spark3": "qwen"}
        (entry,) = await asked_peers.models_with_peers([])
        assert entry["lockstep"]["host"] == "spark3"
        assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "silent", "hot": False}]
    output = capfd.readouterr()
    assert "spark2 does not answer" in output.out + output.err


@in_event_loop
async def test_a_silent_one_is_not_waited_for_again_and_comes_back(identities, monkeypatch):
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 0.2)
    peer = StandInPeer([model("qwen")], silent=True)
    async with peers_of(identities, peer) as asked_peers:
        assert await asked_peers.gateways_serving("qwen") == []
        assert await asked_peers.hot_model_by_peer() == {"spark2": None}
        monkeypatch.setattr(peer_gateways, "FRESH_S", 0.0)
        # It is asked in the background.
        assert await asked_peers.gateways_serving("qwen") == []
        peer.silent = False
        while not await asked_peers.gateways_serving("qwen"):
            await asyncio.sleep(0)
        # Would wait an hour, if it waited.
        peer.silent = True
        asked_peers.mark_failed(asked_peers._states["spark2"].peer)
        monkeypatch.setattr(peer_gateways, "ANSWER_S", 3600.0)
        assert await asked_peers.gateways_serving("qwen") == []


def test_a_request_of_a_gateway_names_one_person_with_a_role():
    peers, anna, bert = (
        Peers(GatewayConfiguration("spark1", ())),
        Person("anna", "operate"),
        Person("bert", "use"),
    )
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


@in_event_loop
async def test_one_with_the_certificate_of_another_host_is_sent_nothing(identities, capfd):
    impostor = StandInPeer([model("qwen")], certificate="spark3")
    async with peers_of(identities, impostor) as asked_peers:
        assert await asked_peers.gateways_serving("qwen") == []
    assert impostor.requests == []
    expected = "expected lockstep:gateway:spark2, found lockstep:gateway:spark3"
    assert expected in " ".join(capfd.readouterr())


def test_without_its_certificate_a_gateway_with_peers_does_not_start(tmp_path):
    paths, alone = layout.Paths(tmp_path), GatewayConfiguration("spark1", ())
    assert peer_gateways.client_context(alone, paths) is None
    with_peer = replace(alone, peers=(PeerGateway("spark2", "127.0.0.1", 1),))
    with pytest.raises(errors.Problem, match=r"peer-gateway-spark1\.pem.*run the deploy"):
        peer_gateways.server_context(with_peer, paths)


def test_an_address_of_ipv6_is_an_url():
    url = peer_gateways.peer_url(PeerGateway("spark2", "fd00::2", 8090))
    assert url == "https://[fd00::2]:8090"
