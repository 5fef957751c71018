"""Web pages of other origins that the inventory names, as browsers ask about them (CORS).

A page sends a key as every client does. Cookies and other logins of the browser are never asked for
(no Access-Control-Allow-Credentials), so a page has what its key may do, and nothing of its reader.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.onhost.gateway.wire.answers import Headers, Message, Send

#: How long a browser may remember that a page may ask, seconds.
REMEMBERED_S = 600
_OURS = b"access-control-"


class CrossOrigin:
    """Answers for pages of exactly these origins ("https://chat.example:8000")."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, scope: Message) -> Headers | None:
        """The headers that answer a browser's question before the request; None: it is none.

        It carries no key, and learns nothing but that the origin is listed.
        """
        found = dict(scope["headers"])
        asked = b"access-control-request-method" in found and scope["method"] == "OPTIONS"
        if not asked or found.get(b"origin") not in self._origins:
            return None
        return [
            *self._of(found[b"origin"]),
            (b"access-control-allow-methods", b"GET, POST"),
            # Whatever the page's library sends: what may be asked is decided by the key.
            (
                b"access-control-allow-headers",
                found.get(b"access-control-request-headers", b"authorization, content-type"),
            ),
            (b"access-control-max-age", str(REMEMBERED_S).encode()),
        ]

    def with_headers(self, scope: Message, send: Send) -> Send:
        """``send`` with the headers of this origin, and none that an engine sends of its own."""
        origin = dict(scope["headers"]).get(b"origin")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = ((name.lower(), value) for name, value in message["headers"])
                headers = [pair for pair in pairs if not pair[0].startswith(_OURS)]
                message = {**message, "headers": [*headers, *self._of(origin)]}
            await send(message)

        return send_with_headers

    def _of(self, origin: bytes | None) -> Headers:
        # A cache must not give one origin's answer to another.
        vary = [(b"vary", b"Origin")] if self._origins else []
        if origin is None or origin not in self._origins:
            return vary
        named = (b"access-control-allow-origin", origin)
        return [*vary, named, (b"access-control-expose-headers", b"*")]
