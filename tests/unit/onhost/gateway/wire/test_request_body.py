"""The time to wait for a slow body; test_hostile_requests.py has the other bodies."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.gateway.wire import request_body
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal


def test_the_time_of_a_body_that_drips_counts_and_that_of_an_engine_does_not(monkeypatch):
    now = 0.0
    monkeypatch.setattr(request_body, "time", SimpleNamespace(monotonic=lambda: now))
    to_come = 3

    async def receive() -> dict[str, Any]:
        nonlocal now, to_come
        await asyncio.sleep(0)
        now += 10.0
        to_come -= 1
        return {"type": "http.request", "body": b"x", "more_body": to_come != 0}

    async def read_slowly() -> int:
        nonlocal now
        size = 0
        async for chunk in request_body.Body(receive).read_chunks():
            now += 100.0
            size += len(chunk)
        return size

    assert asyncio.run(read_slowly()) == 3
    to_come = -1
    with pytest.raises(GatewayRefusal, match=r"did not come; [34] bytes"):
        asyncio.run(request_body.Body(receive).read_whole(2**20))
