"""The time to wait for a slow body; test_hostile_requests.py has the other bodies."""

import asyncio
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.gateway.wire import request_body
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal


def test_the_time_of_a_body_that_drips_counts_and_that_of_an_engine_does_not(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(request_body, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def dripping_body(has_more: Iterator[bool]) -> request_body.Body:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            now[0] += 10.0
            return {"type": "http.request", "body": b"x", "more_body": next(has_more)}

        return request_body.Body(receive)

    async def read_slowly() -> int:
        size = 0
        async for chunk in dripping_body(iter((True, True, False))).read_chunks():
            now[0] += 100.0
            size += len(chunk)
        return size

    assert asyncio.run(read_slowly()) == 3
    with pytest.raises(GatewayRefusal, match=r"did not come; [34] bytes"):
        asyncio.run(dripping_body(itertools.repeat(True)).read_whole(2**20))
