"""The page at `/`, and the facts behind it at `/status` and `/history`.

A watcher holds one answer open. All watchers share the queries, which end with the last of them.
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

from lockstep.onhost.gateway.keys import Person
from lockstep.onhost.gateway.prometheus_history import History
from lockstep.onhost.operator.live_state import FRESH_S, Facts

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


def content_security_policy(text: str) -> str:
    """Return a Content-Security-Policy that allows only a page's own styles and scripts."""
    sources: dict[str, list[str]] = {"style": [], "script": []}
    none = ["'none'"]
    for kind, inside in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        sources[kind].append(f"'sha256-{digest}'")
    own = [f"{kind}-src {' '.join(digests or none)}" for kind, digests in sources.items()]
    other_directives = ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return "; ".join(
        ("default-src 'none'", *own, "connect-src 'self'", "img-src data:", *other_directives)
    )


@dataclass
class Page:
    """The handlers of the page; access is checked before them."""

    facts: Facts  #: Facts of this host.
    #: Facts of other hosts by name, {"fault": reason} for one that does not answer; None without
    #: other hosts.
    peers: Peers | None = None
    path: Path = PAGE  #: The page as the deploy wrote it.
    kept_by: History | None = None  #: Source of the last hour; None if it is not recorded here.
    #: The gateway's own facts: "use" (`Counts.use`), and the address of Open WebUI, "webui_at"
    #: {"port", "loopback"} or null.
    own: Callable[[], dict[str, Any]] = dict
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _cached_document: tuple[float, dict[str, Any]] | None = field(default=None, init=False)

    async def page(self, _: Request) -> Response:
        """Answer GET /."""
        try:
            text = await asyncio.to_thread(self.path.read_text, encoding="utf-8")
        except OSError:
            return PlainTextResponse(f"{self.path} is missing: run the deploy again\n", 503)
        headers = {**_HEADERS, "content-security-policy": content_security_policy(text)}
        return Response(text, media_type="text/html", headers=headers)

    async def history(self, _: Request) -> Response:
        """Answer GET /history: the last hour as one JSON document, null if not recorded here."""
        hour = await self.kept_by.last_hour() if self.kept_by else None
        return JSONResponse(hour, headers=_HEADERS)

    async def status(self, request: Request, person: Person, alone: bool = False) -> Response:
        """Answer GET /status: one JSON document, or one a second as server-sent events.

        With `alone`, other hosts are left out: the asking gateway queries each one itself.
        """
        accepts = request.headers.get("accept", "")
        if "stream" in request.query_params or "text/event-stream" in accepts:
            headers = {**_HEADERS, "x-accel-buffering": "no"}
            events = self._events(person, alone)
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        return JSONResponse(await self._status_document(person, alone), headers=_HEADERS)

    async def _events(self, person: Person, alone: bool) -> AsyncIterator[str]:
        while True:
            yield f"data: {json.dumps(await self._status_document(person, alone))}\n\n"
            await asyncio.sleep(FRESH_S)

    async def _status_document(self, person: Person, alone: bool) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        async with self._turn:
            if (
                self._cached_document is None
                or loop.time() - self._cached_document[0] >= FRESH_S * 0.9
            ):
                self._cached_document = loop.time(), await asyncio.to_thread(self.facts.facts_now)
            document = self._cached_document[1]
        # Outside the lock: two gateways that ask each other would deadlock.
        if self.peers and not alone:
            document = {**document, "peers": await self.peers()}
        return {**document, **self.own(), "you": {"name": person.name, "role": person.role}}
