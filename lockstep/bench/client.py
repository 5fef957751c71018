"""Direct HTTP to one engine, timed: no proxy of the environment is used.

Requests of a wave are sent and read by one thread, on connections that were opened before. With a
thread for each of 64 streams the engine, which sends an event to each at every step, woke 64
threads a step, and they waited for each other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from lockstep.bench.connection import Connection
from lockstep.bench.sample import Ask, Sample
from lockstep.bench.stream import Stream
from lockstep.onhost.core.errors import why
from lockstep.onhost.engine.openai_api import streamed
from lockstep.onhost.engines import Engine

CONNECT_S = 10.0
_REFUSED = (400, 413, 415, 422, 501)


class Unreachable(Exception):
    """The engine did not answer a question about itself; `str()` says what happened instead."""


@dataclass(frozen=True)
class Clock:
    """Where times come from; tests give clocks of their own.

    Attributes:
        now: Seconds that only run forward; every duration is a difference of these.
        wall: Unix time; read beside `now` to notice a jump or a suspended machine.
    """

    now: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time


class Client:
    """Asks one engine.

    Attributes:
        engine: Which one answers, None while it is not known.
        timeout_s: Longest wait for a whole answer, seconds.
    """

    engine: Engine | None = None
    timeout_s = 600.0

    def __init__(self, url: str, model: str, key: str | None = None, clock: Clock | None = None):
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self.clock = clock or Clock()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str, timeout_s: float = 10.0) -> str | None:
        """Text of a GET; None where the engine has no such page.

        Raises:
            Unreachable: no answer, or one that is neither 200 nor 404.
        """
        headers = {"Accept-Encoding": "identity", **self._headers}
        timeout = urllib3.Timeout(connect=CONNECT_S, read=timeout_s)
        # An engine may end a resting connection at any moment, so each is used once.
        try:
            answer = urllib3.PoolManager(retries=False).request(
                "GET", self.url + path, headers=headers, timeout=timeout
            )
        except (HTTPError, OSError) as fault:
            raise Unreachable(f"{path}: {_short(fault)}") from fault
        text = answer.data.decode("utf-8", "replace")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Unreachable(f"{path}: HTTP {answer.status} {text[:200]}")
        return text

    def complete(self, ask: Ask) -> Sample:
        """One completion. Never raises: what went wrong stands in the sample."""
        return self.together([ask])[0][0]

    def together(self, asks: Sequence[Ask]) -> tuple[list[Sample], float]:
        """Completions that are asked for at the same moment, and the seconds until all are there.

        Never raises: what went wrong stands in the samples.
        """
        return asyncio.run(self._together(asks))

    async def _together(self, asks: Sequence[Ask]) -> tuple[list[Sample], float]:
        bodies = [json.dumps(self._body(ask)).encode() for ask in asks]
        opened = [Connection.open(self.url, CONNECT_S) for _ in asks]
        lines = await asyncio.gather(*opened, return_exceptions=True)
        path, began = urlsplit(self.url).path + "/v1/chat/completions", []
        for line, body in zip(lines, bodies, strict=True):
            began.append(self.clock.now())
            if isinstance(line, Connection):
                line.send(path, self._headers, body)
        each = zip(asks, lines, began, strict=True)
        samples = await asyncio.gather(*(self._answer(*one) for one in each))
        return samples, self.clock.now() - began[0]

    async def _answer(self, ask: Ask, line: Connection | BaseException, began: float) -> Sample:
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
        except (OSError, EOFError) as broken:
            fault = _short(broken)
        except (ValueError, LookupError, TypeError, AttributeError) as wrong:
            fault = f"not an answer of this API: {wrong}"
        seconds = self.clock.now() - began
        return Sample(ask.label, asked=ask.max_tokens, seconds=seconds, fault=fault)

    async def _read(self, ask: Ask, line: Connection, began: float) -> Sample:
        await line.answered()
        if line.status != 200:
            words = " ".join((await line.whole()).decode("utf-8", "replace")[:400].split())
            said = f"HTTP {line.status} {words}"
            seconds = self.clock.now() - began
            empty = Sample(ask.label, asked=ask.max_tokens, status=line.status, seconds=seconds)
            refused = line.status in _REFUSED
            return replace(empty, refusal=said) if refused else replace(empty, fault=said)
        found = Stream()
        if ask.stream:
            async for text in line.lines():
                found.line(text, self.clock.now())
        else:
            found.whole(await line.whole())
        return found.sample(ask, self.model, began, self.clock.now())

    def _body(self, ask: Ask) -> dict[str, object]:
        return {
            "model": self.model,
            "messages": list(ask.messages),
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            # A lone token has an event anyhow, and the ids of a long prompt would come with it.
            **(streamed(self.engine if ask.max_tokens > 1 else None) if ask.stream else {}),
            **({"ignore_eos": True} if ask.ignore_eos else {}),
            **ask.extra,
        }


def _short(fault: BaseException) -> str:
    """The innermost reason; urllib3 wraps the socket's."""
    return f"{type(fault).__name__}: {why(fault.__cause__ or fault)}"[:200]
