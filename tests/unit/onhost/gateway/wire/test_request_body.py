"""The time to wait for a slow body; test_hostile_requests.py has the other bodies."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.gateway.wire import request_body
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal


def test_a_body_that_drips_is_cut_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(request_body, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def receive() -> dict[str, Any]:
        # Ten seconds of the made-up clock.
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(GatewayRefusal, match=r"did not come; [34] bytes"):
        asyncio.run(request_body.Body(receive).read_whole(2**20))


def test_the_time_in_which_nobody_takes_it_on_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(request_body, "time", SimpleNamespace(monotonic=lambda: now))
    coming = [{"type": "http.request", "body": b"x", "more_body": more} for more in (1, 1, 1, 0)]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def read() -> int:
        nonlocal now
        size = 0
        async for chunk in request_body.Body(receive).read_chunks():
            # An engine that is slow to take the body.
            now += 100.0
            size += len(chunk)
        return size

    assert asyncio.run(read()) == 4
