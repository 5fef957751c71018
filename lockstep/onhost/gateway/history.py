"""The last hour of this host, from the Prometheus on it, for the page."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

import httpx2

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import connections

#: Seconds that the page shows, and between two of its points.
HOUR_S, STEP_S = 3600, 30
#: Seconds for which an answer is given again.
_FRESH_S = 15.0
_TIMEOUT_S = 5.0
#: Key for the page → PromQL; those that this host records have the same names.
QUERIES = {
    "memory_gib": 'lockstep_memory_available_bytes{job!="twin"} / 1073741824',
    "celsius": 'lockstep_gpu_temperature_celsius{job!="twin"}',
    "watts": 'lockstep_gpu_power_watts{job!="twin"}',
    "mhz": 'lockstep_gpu_clock_hertz{job!="twin"} / 1000000',
    "tok_s": 'sum(lockstep_engine_tokens_per_second{job!="twin"})',
}


class History:
    """What the Prometheus at a URL has of the last hour; one look for all who ask."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turn = asyncio.Lock()
        self._kept: tuple[float, dict[str, Any]] | None = None
        self._transport = connections.transport()

    async def last_hour(self) -> dict[str, Any]:
        """ "ends" (Unix time, s), "step_s", and "series": key of `QUERIES` → values, oldest first.

        null: there is no value of that moment. A key without any value is left out. Instead
        "fault" says why there is nothing.
        """
        async with self._turn:
            if self._kept is None or time.monotonic() - self._kept[0] > _FRESH_S:
                self._kept = time.monotonic(), await self._look()
            return self._kept[1]

    async def _look(self) -> dict[str, Any]:
        ends = int(time.time()) // STEP_S * STEP_S
        try:
            found = await asyncio.gather(*(self._values(each, ends) for each in QUERIES.values()))
        except connections.FAULTS as fault:
            return {"fault": f"Prometheus does not answer: {errors.why(fault)}"}
        series = dict(zip(QUERIES, found, strict=True))
        told = {key: values for key, values in series.items() if any(v is not None for v in values)}
        return {"ends": ends, "step_s": STEP_S, "series": told}

    async def _values(self, query: str, ends: int) -> list[float | None]:
        asked = {"query": query, "start": ends - HOUR_S, "end": ends, "step": STEP_S}
        url = f"{self._url}/api/v1/query_range?{urlencode(asked)}"
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_S)
        request = httpx2.Request("GET", url, extensions={"timeout": timeout})
        every = (await connections.document(self._transport, request))["data"]["result"]
        points = {int(at): _number(value) for at, value in every[0]["values"]} if every else {}
        return [points.get(at) for at in range(ends - HOUR_S, ends + 1, STEP_S)]


def _number(text: str) -> float | None:
    number = float(text)
    # Neither infinity nor "not a number" is JSON.
    return round(number, 3) if abs(number) < float("inf") else None
