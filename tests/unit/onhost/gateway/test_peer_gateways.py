"""Other gateways: their models, who is silent, and the certificates by which they are known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from an_identity import give_identity

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
async def listening(
    peer: StandInPeer, gateway: PeerGateway, paths: layout.Paths
) -> AsyncIterator[PeerGateway]:
    """Let a stand-in answer at a gateway's address; yields the gateway with its port."""
    own = GatewayConfiguration(peer.certificate or gateway.name, (), peers=(gateway,))
    tls = peer_gateways.server_context(own, paths)
    server = await asyncio.start_server(peer.answer, gateway.address, 0, ssl=tls)
    try:
        yield replace(gateway, port=server.sockets[0].getsockname()[1])
    finally:
        server.close()


#: Runs a check against gateways called spark2, spark3 …
RunCheck = Callable[..., None]


@pytest.fixture
def run_check(identities: layout.Paths) -> RunCheck:
    async def run(check: Callable[[Peers], Awaitable[None]], *stand_ins: StandInPeer) -> None:
        async with AsyncExitStack() as stack:
            gateways = [
                await stack.enter_async_context(
                    listening(peer, PeerGateway(f"spark{n}", f"127.0.0.{n}", 0), identities)
                )
                for n, peer in enumerate(stand_ins, 2)
            ]
            own = GatewayConfiguration("spark1", (), peers=tuple(gateways))
            await check(Peers(own, peer_gateways.client_context(own, identities)))

    return lambda *arguments: asyncio.run(asyncio.wait_for(run(*arguments), 180))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only bounds a hang.
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 180.0)


def names(asked_peers: list[PeerGateway]) -> list[str]:
    return [peer.name for peer in asked_peers]


def silent(asked_peers: Peers) -> list[str]:
    return [name for name, peer in asked_peers._states.items() if peer.silent]


def headers(**changes: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of another gateway's request; None leaves a header out."""
    values = {PEER_PERSON: "anna", PEER_ROLE: "operate"}
    values |= {"x-lockstep-" + name: value for name, value in changes.items()}  # type: ignore[misc]
    return [(name.encode(), value.encode()) for name, value in values.items() if value is not None]


def test_the_models_of_others_are_listed_once_with_their_host(run_check: RunCheck) -> None:
    peer = StandInPeer([model("qwen"), model("mistral", "cold"), model("only-there", "cold")])

    async def check(asked_peers: Peers) -> None:
        own = [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]
        models = {
            entry["id"]: entry["lockstep"] for entry in await asked_peers.models_with_peers(own)
        }
        peer_state = {"host": "spark2", "state": "hot", "hot": True}
        assert models["qwen"] == {
            **{"state": "cold", "hot": False, "host": "spark1"},
            "peers": [peer_state],
        }
        assert models["mistral"]["hot"] and not models["mistral"]["peers"][0]["hot"]
        assert models["only-there"] == {"state": "cold", "hot": False, "host": "spark2"}
        assert own == [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]

    run_check(check, peer)


def test_of_others_with_one_model_the_hot_one_is_the_entry(run_check: RunCheck) -> None:
    async def check(asked_peers: Peers) -> None:
        (entry,) = await asked_peers.models_with_peers([])
        assert entry["lockstep"]["host"] == "spark3"
        assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "cold", "hot": False}]
        assert names(await asked_peers.gateways_serving("qwen")) == ["spark3"]
        assert names(await asked_peers.gateways_serving("qwen", cold=True)) == [
            "spark3",
            "spark2",
        ]
        assert await asked_peers.gateways_serving("another", cold=True) == []

    run_check(check, StandInPeer([model("qwen", "cold")]), StandInPeer([model("qwen")]))


def test_they_are_asked_seldom(run_check: RunCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_gateways, "FRESH_S", 3600.0)
    peer = StandInPeer([model("qwen")])

    async def check(asked_peers: Peers) -> None:
        for _ in range(5):
            await asked_peers.gateways_serving("qwen")
        (request,) = peer.requests
        assert request.startswith("GET /v1/models ")
        assert f"{PEER_PERSON}: spark1" in request

    run_check(check, peer)


@pytest.mark.parametrize("fault", ["silent", "refuses", "nonsense"])
def test_one_that_gives_no_answer_holds_nothing_and_is_named(
    run_check: RunCheck,
    fault: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer, other_peer = StandInPeer([model("qwen")]), StandInPeer([model("qwen")])

    async def check(asked_peers: Peers) -> None:
        assert names(await asked_peers.gateways_serving("qwen")) == ["spark2", "spark3"]
        if fault == "silent":
            monkeypatch.setattr(peer_gateways, "ANSWER_S", 2.0)
            peer.silent = True
        elif fault == "refuses":
            peer.status = 500
        else:
            peer.models = [{"id": "qwen", "lockstep": {"host": "spark2"}}]
        for value in asked_peers._states.values():
            value.last_asked = float("-inf")
        assert names(await asked_peers.gateways_serving("qwen", cold=True)) == ["spark3"]
        assert silent(asked_peers) == ["spark2"]
        # Its last word is too old to switch by.
        assert await asked_peers.hot_model_by_peer() == {"spark2": None, "spark3": "qwen"}
        (entry,) = await asked_peers.models_with_peers([])
        assert entry["lockstep"]["host"] == "spark3"
        assert entry["lockstep"]["peers"] == [{"host": "spark2", "state": "silent", "hot": False}]

    run_check(check, peer, other_peer)
    output = capfd.readouterr()
    assert "spark2 does not answer" in output.out + output.err


def test_a_silent_one_is_not_waited_for_again(
    run_check: RunCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 0.2)
    peer = StandInPeer([model("qwen")], silent=True)

    async def check(asked_peers: Peers) -> None:
        assert await asked_peers.gateways_serving("qwen") == []
        # Would wait an hour, if it waited.
        monkeypatch.setattr(peer_gateways, "ANSWER_S", 3600.0)
        monkeypatch.setattr(peer_gateways, "FRESH_S", 0.0)
        assert await asked_peers.gateways_serving("qwen") == []

    run_check(check, peer)


def test_one_that_was_silent_comes_back(
    run_check: RunCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_gateways, "ANSWER_S", 0.2)
    peer = StandInPeer([model("qwen")], silent=True)

    async def check(asked_peers: Peers) -> None:
        assert await asked_peers.gateways_serving("qwen") == []
        assert await asked_peers.hot_model_by_peer() == {"spark2": None}
        monkeypatch.setattr(peer_gateways, "FRESH_S", 0.0)
        peer.silent = False
        while not await asked_peers.gateways_serving("qwen"):
            await asyncio.sleep(0)
        assert silent(asked_peers) == []

    run_check(check, peer)


def test_after_a_failed_request_none_is_sent_there(run_check: RunCheck) -> None:
    async def check(asked_peers: Peers) -> None:
        first, second = await asked_peers.gateways_serving("qwen")
        asked_peers.mark_failed(first)
        assert await asked_peers.gateways_serving("qwen") == [second]

    run_check(check, StandInPeer([model("qwen")]), StandInPeer([model("qwen")]))


def test_a_request_of_a_gateway_names_one_person_with_a_role(run_check: RunCheck) -> None:
    async def check(asked_peers: Peers) -> None:
        assert asked_peers.caller_of(headers()) == Person("anna", "operate")
        assert asked_peers.caller_of(
            asked_peers.forwarding_headers(Person("bert", "use"))
        ) == Person("bert", "use")
        for wrong in (
            headers(role="root"),
            headers(role=None),
            headers(person="a b"),
            headers(person=""),
            [*headers(), (PEER_ROLE.encode(), b"use")],
        ):
            assert asked_peers.caller_of(wrong) is None

    run_check(check, StandInPeer())


def test_one_with_the_certificate_of_another_host_is_sent_nothing(
    run_check: RunCheck, capfd: pytest.CaptureFixture[str]
) -> None:
    impostor = StandInPeer([model("qwen")], certificate="spark3")

    async def check(asked_peers: Peers) -> None:
        assert await asked_peers.gateways_serving("qwen") == []

    run_check(check, impostor)
    assert impostor.requests == []
    expected = "expected lockstep:gateway:spark2, found lockstep:gateway:spark3"
    assert expected in " ".join(capfd.readouterr())


def test_without_its_certificate_a_gateway_with_peers_does_not_start(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    alone = GatewayConfiguration("spark1", ())
    assert peer_gateways.client_context(alone, paths) is None
    with pytest.raises(errors.Problem, match=r"peer-gateway-spark1\.pem.*run the deploy"):
        peer_gateways.server_context(
            replace(alone, peers=(PeerGateway("spark2", "127.0.0.1", 1),)), paths
        )


def test_an_address_of_ipv6_is_an_url() -> None:
    assert (
        peer_gateways.peer_url(PeerGateway("spark2", "fd00::2", 8090)) == "https://[fd00::2]:8090"
    )


def test_what_is_hot_elsewhere_is_known_by_the_models_own_name(run_check: RunCheck) -> None:
    alias = model("auto")
    alias["lockstep"]["alias_of"] = "qwen"
    resting, busy = StandInPeer([model("qwen", "cold")]), StandInPeer([alias, model("qwen")])

    async def check(peers: Peers) -> None:
        assert await peers.hot_model_by_peer() == {"spark2": "", "spark3": "qwen"}

    run_check(check, resting, busy)
