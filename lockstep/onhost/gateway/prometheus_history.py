"""The last hour of this host for the page, from the host's Prometheus."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

import httpx2

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import outgoing_connections

#: Seconds shown by the page, and between two points.
HOUR_S, STEP_S = 3600, 30
#: Seconds for which an answer is reused.
_FRESH_S = 15.0
_TIMEOUT_S = 5.0
#: Key for the page → PromQL; metrics that this host records have the same names.
QUERIES = {
    "memory_gib": 'lockstep_memory_available_bytes{job!="peer"} / 1073741824',
    "celsius": 'lockstep_gpu_temperature_celsius{job!="peer"}',
    "watts": 'lockstep_gpu_power_watts{job!="peer"}',
    "mhz": 'lockstep_gpu_clock_hertz{job!="peer"} / 1000000',
    "tok_s": 'sum(lockstep_engine_tokens_per_second{job!="peer"})',
}


class History:
    """The last hour in the Prometheus at a URL; all readers share one query."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turn = asyncio.Lock()
        self._cached_document: tuple[float, dict[str, Any]] | None = None
        self._transport = outgoing_connections.http_transport()

    async def last_hour(self) -> dict[str, Any]:
        """Return "ends" (Unix time, s), "step_s", and "series": `QUERIES` key → values.

        Values are in order, oldest first, and null if their moment has none. A key without any
        value is left out. If there is nothing at all, the result is {"fault": reason} instead.
        """
        async with self._turn:
            if (
                self._cached_document is None
                or time.monotonic() - self._cached_document[0] > _FRESH_S
            ):
                self._cached_document = time.monotonic(), await self._hour_document()
            return self._cached_document[1]

    async def _hour_document(self) -> dict[str, Any]:
        ends = int(time.time()) // STEP_S * STEP_S
        try:
            series_found = await asyncio.gather(
                *(self._query_series(value, ends) for value in QUERIES.values())
            )
        except outgoing_connections.FAULTS as fault:
            return {"fault": f"Prometheus does not answer: {errors.why(fault)}"}
        series = dict(zip(QUERIES, series_found, strict=True))
        known_series = {
            key: values for key, values in series.items() if any(v is not None for v in values)
        }
        return {"ends": ends, "step_s": STEP_S, "series": known_series}

    async def _query_series(self, query: str, ends: int) -> list[float | None]:
        query_words = {"query": query, "start": ends - HOUR_S, "end": ends, "step": STEP_S}
        url = f"{self._url}/api/v1/query_range?{urlencode(query_words)}"
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_S)
        request = httpx2.Request("GET", url, extensions={"timeout": timeout})
        every = (await outgoing_connections.fetch_json_object(self._transport, request))["data"][
            "result"
        ]
        points = {int(at): _number(value) for at, value in every[0]["values"]} if every else {}
        return [points.get(at) for at in range(ends - HOUR_S, ends + 1, STEP_S)]


def _number(text: str) -> float | None:
    number = float(text)
    # JSON has neither infinity nor "not a number".
    return round(number, 3) if abs(number) < float("inf") else None
