"""POST /switch: what comes of the lines of a switch."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from lockstep.onhost.gateway import app
from lockstep.onhost.gateway.configuration import Gateway
from lockstep.onhost.gateway.wire.answers import Refused

STOPPING = {"phase": "stop", "line": "stopping mistral"}


def switched(monkeypatch, *lines: dict) -> list[dict]:
    """The events of a switch that says these lines."""

    async def switch(target: str, person: str):
        for line in lines:
            yield line

    monkeypatch.setattr(app.ask, "switch", switch)
    sent: list[bytes] = []

    async def send(message: dict) -> None:
        sent.append(message.get("body", b""))

    hot = SimpleNamespace(changed=lambda: None)
    gateway = SimpleNamespace(gateway=Gateway("spark1", ()), hot=hot)
    asyncio.run(app.Application._switching(gateway, "qwen", "anna", send))
    return [json.loads(event.removeprefix(b"data: ")) for event in sent if event]


def test_the_lines_and_the_end_come_as_events(monkeypatch):
    end = {"code": 1, "said": "the switch to qwen FAILED; mistral is hot again"}
    assert switched(monkeypatch, STOPPING, end) == [STOPPING, end]


def test_while_somebody_switches_the_answer_is_a_refusal_with_their_name(monkeypatch):
    locked = {"code": 75, "said": "ben is switching to tiny since 3 s (process 7)"}
    with pytest.raises(Refused, match="ben is switching to tiny") as refused:
        switched(monkeypatch, locked)
    assert refused.value.status == 409


def test_a_stream_that_has_begun_tells_it_as_its_end(monkeypatch):
    locked = {"code": 75, "said": "ben is switching to tiny since 3 s (process 7)"}
    assert switched(monkeypatch, STOPPING, locked) == [STOPPING, locked]
