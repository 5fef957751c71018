"""The page at `/`, and the facts behind it at `/status` and `/history`.

A watcher holds one answer open. All watchers share the looks, which end with the last of them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from lockstep.onhost.gateway.history import History
from lockstep.onhost.gateway.keys import Person
from lockstep.onhost.operator.facts import FRESH_S, Facts

#: Written by the deploy.
PAGE = Path("/etc/lockstep/gateway.html")
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Peers = Callable[[], Awaitable[dict[str, Any]]]


def policy(text: str) -> str:
    """The Content-Security-Policy under which a page's own styles and scripts alone work."""
    found: dict[str, list[str]] = {"style": [], "script": []}
    none = ["'none'"]
    for kind, inside in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        found[kind].append(f"'sha256-{digest}'")
    own = [f"{kind}-src {' '.join(digests or none)}" for kind, digests in found.items()]
    rest = ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return "; ".join(("default-src 'none'", *own, "connect-src 'self'", "img-src data:", *rest))


@dataclass
class Page:
    """The handlers; who may come here is decided before them."""

    facts: Facts  #: Of this host.
    #: The facts of other hosts by name, {"fault": why} where one does not tell; None: there are no
    #: others.
    peers: Peers | None = None
    path: Path = PAGE  #: The page as the deploy wrote it.
    kept_by: History | None = None  #: Who keeps the last hour; None: nobody does.
    #: What this gateway itself knows: "use" of it (`Counts.use`), and where Open WebUI listens,
    #: "webui_at" {"port", "loopback"} or null.
    own: Callable[[], dict[str, Any]] = dict
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _kept: tuple[float, dict[str, Any]] | None = field(default=None, init=False)

    async def page(self, _: Request) -> Response:
        """GET /"""
        try:
            text = await asyncio.to_thread(self.path.read_text, encoding="utf-8")
        except OSError:
            return PlainTextResponse(f"{self.path} is missing: run the deploy again\n", 503)
        headers = {**_HEADERS, "content-security-policy": policy(text)}
        return Response(text, media_type="text/html", headers=headers)

    async def history(self, _: Request) -> Response:
        """GET /history: the last hour as one JSON document, null where nobody keeps it here."""
        found = await self.kept_by.last_hour() if self.kept_by else None
        return JSONResponse(found, headers=_HEADERS)

    async def status(self, request: Request, person: Person, alone: bool = False) -> Response:
        """GET /status: one JSON document, or one a second as server-sent events.

        `alone`: without other hosts. Another gateway asks, which asks each one itself.
        """
        accepts = request.headers.get("accept", "")
        if "stream" in request.query_params or "text/event-stream" in accepts:
            headers = {**_HEADERS, "x-accel-buffering": "no"}
            events = self._events(person, alone)
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        return JSONResponse(await self._now(person, alone), headers=_HEADERS)

    async def _events(self, person: Person, alone: bool) -> AsyncIterator[str]:
        while True:
            yield f"data: {json.dumps(await self._now(person, alone))}\n\n"
            await asyncio.sleep(FRESH_S)

    async def _now(self, person: Person, alone: bool) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._kept is None or loop.time() - self._kept[0] >= FRESH_S * 0.9:
                self._kept = loop.time(), await asyncio.to_thread(self.facts.now)
            found = self._kept[1]
        # Not within the turn: two gateways that ask each other would wait for each other.
        if self.peers and not alone:
            found = {**found, "peers": await self.peers()}
        return {**found, **self.own(), "you": {"name": person.name, "role": person.role}}
