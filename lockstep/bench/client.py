"""A timed HTTP client of one engine, without any proxy of the environment.

One thread sends and reads all requests of a wave, on connections opened beforehand. With a thread
for each of 64 streams, the engine's event at every step woke 64 threads, and these threads waited
for each other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from lockstep.bench.connection import Connection
from lockstep.bench.sample import Ask, BenchSample
from lockstep.bench.stream import Stream
from lockstep.onhost.core import http_client
from lockstep.onhost.core.errors import why_with_kind
from lockstep.onhost.engine.openai_api import streaming_fields
from lockstep.onhost.engines import Engine

CONNECT_S = 10.0
_REFUSED = (400, 413, 415, 422, 501)


class BenchUnreachable(Exception):
    """The engine did not answer a question about itself; `str()` gives the reason."""


@dataclass(frozen=True)
class Clock:
    """A source of times; tests pass their own.

    Attributes:
        now: Monotonic seconds; every duration is a difference of these.
        wall: Unix time; read beside `now` to notice a jump or a suspended machine.
    """

    now: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time


class Client:
    """A client that asks one engine.

    Attributes:
        engine: The engine that answers, or None while it is unknown.
        timeout_s: Longest wait for a whole answer, seconds.
    """

    engine: Engine | None = None
    timeout_s = 600.0

    def __init__(self, url: str, model: str, key: str | None = None, clock: Clock | None = None):
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self.clock = clock or Clock()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str) -> str | None:
        """Return the text of a GET, or None if the engine has no such page.

        Raises:
            BenchUnreachable: no answer, or an answer that is neither 200 nor 404.
        """
        try:
            answer = http_client.ask(self.url + path, CONNECT_S, headers=self._headers)
        except (*http_client.FAULTS, ValueError) as fault:
            raise BenchUnreachable(f"{path}: {why_with_kind(fault)}") from fault
        text = answer.body.decode("utf-8", "replace")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise BenchUnreachable(f"{path}: HTTP {answer.status} {text[:200]}")
        return text

    def complete(self, ask: Ask) -> BenchSample:
        """Request one completion. Never raises: the sample records any failure."""
        return self.together([ask])[0][0]

    def together(self, asks: Sequence[Ask]) -> tuple[list[BenchSample], float]:
        """Request completions at the same moment; return them and the seconds until all are there.

        Never raises: the samples record any failure.
        """
        return asyncio.run(self._together(asks))

    async def _together(self, asks: Sequence[Ask]) -> tuple[list[BenchSample], float]:
        bodies = [json.dumps(self._body(ask)).encode() for ask in asks]
        connections = [Connection.open(self.url, CONNECT_S) for _ in asks]
        lines = await asyncio.gather(*connections, return_exceptions=True)
        path, began = urlsplit(self.url).path + "/v1/chat/completions", []
        for line, body in zip(lines, bodies, strict=True):
            began.append(self.clock.now())
            if isinstance(line, Connection):
                line.send(path, self._headers, body)
        asks_and_lines = zip(asks, lines, began, strict=True)
        samples = await asyncio.gather(*(self._answer(*triple) for triple in asks_and_lines))
        return samples, self.clock.now() - began[0]

    async def _answer(
        self, ask: Ask, line: Connection | BaseException, began: float
    ) -> BenchSample:
        limit_s = ask.timeout_s or self.timeout_s
        try:
            if isinstance(line, BaseException):
                raise line
            try:
                async with asyncio.timeout(limit_s):
                    return await self._read(ask, line, began)
            except TimeoutError:
                fault = f"timed out: no answer within {limit_s:.0f} s"
            finally:
                line.close()
        except (OSError, EOFError) as error:
            fault = why_with_kind(error)
        except (ValueError, LookupError, TypeError, AttributeError) as wrong:
            fault = f"not an answer of this API: {wrong}"
        seconds = self.clock.now() - began
        return BenchSample(ask.label, max_tokens=ask.max_tokens, seconds=seconds, fault=fault)

    async def _read(self, ask: Ask, line: Connection, began: float) -> BenchSample:
        await line.wait_for_head()
        if line.status != 200:
            words = " ".join((await line.whole()).decode("utf-8", "replace")[:400].split())
            status_text = f"HTTP {line.status} {words}"
            seconds = self.clock.now() - began
            empty = BenchSample(
                ask.label, max_tokens=ask.max_tokens, status=line.status, seconds=seconds
            )
            is_refusal = line.status in _REFUSED
            return (
                replace(empty, refusal=status_text)
                if is_refusal
                else replace(empty, fault=status_text)
            )
        stream = Stream()
        if ask.stream:
            async for text in line.lines():
                stream.line(text, self.clock.now())
        else:
            stream.whole(await line.whole())
        return stream.sample(ask, self.model, began, self.clock.now())

    def _body(self, ask: Ask) -> dict[str, object]:
        return {
            "model": self.model,
            "messages": list(ask.messages),
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            # A single token has an event anyway, and the ids of a long prompt would come with the
            # keys.
            **(streaming_fields(self.engine if ask.max_tokens > 1 else None) if ask.stream else {}),
            **({"ignore_eos": True} if ask.ignore_eos else {}),
            **ask.extra,
        }
