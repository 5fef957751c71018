"""A body that is waited for: how long, and what is said where it does not come."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.onhost.gateway.wire import body
from lockstep.onhost.gateway.wire.answers import Refused


def whole(*chunks: bytes) -> bytes:
    """A body of which these chunks come, and then nothing more without an end."""
    coming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return asyncio.run(body.Body(receive).whole(2**20))


@pytest.mark.parametrize(("chunks", "bytes_"), [((), 0), ((b"{", b'"a"'), 4)])
def test_a_body_without_an_end_is_cut(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[bytes, ...], bytes_: int
) -> None:
    monkeypatch.setattr(body, "PATIENCE_S", 0.05)
    with pytest.raises(Refused, match=f"did not come; {bytes_} bytes") as refused:
        whole(*chunks)
    assert (refused.value.status, refused.value.close) == (408, True)


def test_a_body_that_drips_is_cut_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(body, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def receive() -> dict[str, Any]:
        # Ten seconds of the made-up clock.
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(Refused, match=r"did not come; [34] bytes"):
        asyncio.run(body.Body(receive).whole(2**20))


def test_the_time_in_which_nobody_takes_it_on_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(body, "time", SimpleNamespace(monotonic=lambda: now))
    coming = [{"type": "http.request", "body": b"x", "more_body": more} for more in (1, 1, 1, 0)]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def read() -> int:
        nonlocal now
        size = 0
        async for chunk in body.Body(receive).chunks():
            # An engine that is slow to take the body.
            now += 100.0
            size += len(chunk)
        return size

    assert asyncio.run(read()) == 4
