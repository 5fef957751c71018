"""Other gateways: their models, who is silent, and the key by which they know each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import peers
from lockstep.onhost.gateway.configuration import PEER_KEY, PEER_PERSON, PEER_ROLE, Gateway, Peer
from lockstep.onhost.gateway.keys import Person
from lockstep.onhost.gateway.peers import Peers

KEY = "sk-" + 43 * "k"


def model(name: str, state: str = "hot", host: str = "spark2") -> dict[str, Any]:
    """As a gateway lists one."""
    return {"id": name, "lockstep": {"state": state, "hot": state == "hot", "host": host}}


@dataclass
class Twin:
    """Another gateway: what it lists, and what it was asked; `silent` takes requests only."""

    models: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    silent: bool = False
    asked: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.silent:
            await reader.read()
        else:
            body = json.dumps({"data": self.models}).encode()
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        writer.close()


@asynccontextmanager
async def listening(twin: Twin) -> AsyncIterator[None]:
    server = await asyncio.start_server(twin.answer, "127.0.0.1", 0)
    twin.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()


def tried(check: Callable[[Peers], Awaitable[None]], *twins: Twin) -> None:
    """Run a check against gateways called spark2, spark3 …"""

    async def run() -> None:
        async with listening(twins[0]), listening(twins[-1]):
            named = [Peer(f"spark{n}", "127.0.0.1", twin.port) for n, twin in enumerate(twins, 2)]
            await check(Peers(Gateway("spark1", (), peers=tuple(named)), KEY))

    asyncio.run(asyncio.wait_for(run(), 180))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only bounds a hang.
    monkeypatch.setattr(peers, "ANSWER_S", 180.0)


def names(found: list[Peer]) -> list[str]:
    return [peer.name for peer in found]


def silent(found: Peers) -> list[str]:
    return [name for name, twin in found._twins.items() if twin.silent]


def headers(**changed: str | None) -> list[tuple[bytes, bytes]]:
    """Of a request that another gateway sends; None leaves one out."""
    values = {PEER_KEY: KEY, PEER_PERSON: "anna", PEER_ROLE: "operate"}
    values |= {"x-lockstep-" + name: value for name, value in changed.items()}  # type: ignore[misc]
    return [(name.encode(), value.encode()) for name, value in values.items() if value is not None]


def test_the_models_of_others_are_listed_once_with_their_host() -> None:
    twin = Twin([model("qwen"), model("mistral", "cold"), model("only-there", "cold")])

    async def check(found: Peers) -> None:
        own = [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]
        listed = {each["id"]: each["lockstep"] for each in await found.listing(own)}
        there = {"host": "spark2", "state": "hot", "hot": True}
        assert listed["qwen"] == {
            **{"state": "cold", "hot": False, "host": "spark1"},
            "twins": [there],
        }
        assert listed["mistral"]["hot"] and not listed["mistral"]["twins"][0]["hot"]
        assert listed["only-there"] == {"state": "cold", "hot": False, "host": "spark2"}
        assert own == [model("qwen", "cold", "spark1"), model("mistral", "hot", "spark1")]

    tried(check, twin)


def test_of_others_with_one_model_the_hot_one_is_the_entry() -> None:
    async def check(found: Peers) -> None:
        (listed,) = await found.listing([])
        assert listed["lockstep"]["host"] == "spark3"
        assert listed["lockstep"]["twins"] == [{"host": "spark2", "state": "cold", "hot": False}]
        assert names(await found.holders("qwen")) == ["spark3"]
        assert names(await found.holders("qwen", cold=True)) == ["spark3", "spark2"]
        assert await found.holders("another", cold=True) == []

    tried(check, Twin([model("qwen", "cold")]), Twin([model("qwen")]))


def test_they_are_asked_with_the_key_and_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "FRESH_S", 3600.0)
    twin = Twin([model("qwen")])

    async def check(found: Peers) -> None:
        for _ in range(5):
            await found.holders("qwen")
        (asked,) = twin.asked
        assert asked.startswith("GET /v1/models ")
        assert f"{PEER_KEY}: {KEY}" in asked and f"{PEER_PERSON}: spark1" in asked

    tried(check, twin)


@pytest.mark.parametrize("fault", ["silent", "refuses", "nonsense"])
def test_one_that_gives_no_answer_holds_nothing_and_is_named(
    fault: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, other = Twin([model("qwen")]), Twin([model("qwen")])

    async def check(found: Peers) -> None:
        assert names(await found.holders("qwen")) == ["spark2", "spark3"]
        if fault == "silent":
            monkeypatch.setattr(peers, "ANSWER_S", 2.0)
            twin.silent = True
        elif fault == "refuses":
            twin.status = 500
        else:
            twin.models = [{"id": "qwen", "lockstep": {"host": "spark2"}}]
        for each in found._twins.values():
            each.asked = float("-inf")
        assert names(await found.holders("qwen", cold=True)) == ["spark3"]
        assert silent(found) == ["spark2"]
        # Its last word is too old to switch by.
        assert await found.hot() == {"spark2": None, "spark3": "qwen"}
        (listed,) = await found.listing([])
        assert listed["lockstep"]["host"] == "spark3"
        assert listed["lockstep"]["twins"] == [{"host": "spark2", "state": "silent", "hot": False}]

    tried(check, twin, other)
    said = capfd.readouterr()
    assert "spark2 does not answer" in said.out + said.err
    assert KEY not in said.out + said.err


def test_a_silent_one_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ANSWER_S", 0.2)
    twin = Twin([model("qwen")], silent=True)

    async def check(found: Peers) -> None:
        assert await found.holders("qwen") == []
        # Would wait an hour, if it waited.
        monkeypatch.setattr(peers, "ANSWER_S", 3600.0)
        monkeypatch.setattr(peers, "FRESH_S", 0.0)
        assert await found.holders("qwen") == []

    tried(check, twin)


def test_one_that_was_silent_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ANSWER_S", 0.2)
    twin = Twin([model("qwen")], silent=True)

    async def check(found: Peers) -> None:
        assert await found.holders("qwen") == []
        assert await found.hot() == {"spark2": None}
        monkeypatch.setattr(peers, "FRESH_S", 0.0)
        twin.silent = False
        while not await found.holders("qwen"):
            await asyncio.sleep(0)
        assert silent(found) == []

    tried(check, twin)


def test_after_a_failed_request_none_is_sent_there() -> None:
    async def check(found: Peers) -> None:
        first, second = await found.holders("qwen")
        found.failed(first)
        assert await found.holders("qwen") == [second]

    tried(check, Twin([model("qwen")]), Twin([model("qwen")]))


def test_a_gateway_is_believed_by_the_key_alone() -> None:
    async def check(found: Peers) -> None:
        assert found.who(headers()) == Person("anna", "operate")
        assert found.who(found.headers(Person("bert", "use"))) == Person("bert", "use")
        for wrong in (
            headers(peer="sk-" + 43 * "x"),
            headers(peer=""),
            headers(peer=None),
            headers(role="root"),
            headers(role=None),
            headers(person="a b"),
            headers(person=""),
            [*headers(), (PEER_ROLE.encode(), b"use")],
        ):
            assert found.who(wrong) is None

    tried(check, Twin())


def test_without_a_key_nobody_is_believed() -> None:
    assert Peers(Gateway("spark1", ())).who(headers(peer="")) is None
    with pytest.raises(errors.Problem, match="peer-key"):
        Peers(Gateway("spark1", (), peers=(Peer("spark2", "127.0.0.1", 1),)))


def test_an_address_of_ipv6_is_an_url() -> None:
    assert peers.url(Peer("spark2", "fd00::2", 8090)) == "http://[fd00::2]:8090"


def test_what_is_hot_elsewhere_is_known_by_the_targets_own_name() -> None:
    alias = model("auto")
    alias["lockstep"]["alias_of"] = "qwen"
    resting, busy = Twin([model("qwen", "cold")]), Twin([alias, model("qwen")])

    async def check(peers: Peers) -> None:
        assert await peers.hot() == {"spark2": "", "spark3": "qwen"}

    tried(check, resting, busy)
