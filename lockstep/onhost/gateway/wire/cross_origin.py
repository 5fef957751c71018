"""Web pages of other origins listed in the inventory, as browsers ask about them (CORS).

A page sends a key like every client. Cookies and other logins of the browser are never used (no
Access-Control-Allow-Credentials), so a page may do what its key may do, and gets nothing of its
reader's.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.onhost.gateway.wire.gateway_answers import Headers, Message, Send

#: Seconds for which a browser may cache the permission.
REMEMBERED_S = 600
_OURS = b"access-control-"


class CrossOrigin:
    """CORS headers for pages of exactly these origins ("https://chat.example:8000")."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight_headers(self, scope: Message) -> Headers | None:
        """Return the headers that answer a browser's preflight request; None if it is none.

        A preflight carries no key, and learns only that the origin is listed.
        """
        headers = dict(scope["headers"])
        is_preflight = b"access-control-request-method" in headers and scope["method"] == "OPTIONS"
        if not is_preflight or headers.get(b"origin") not in self._origins:
            return None
        return [
            *self._headers_of_origin(headers[b"origin"]),
            (b"access-control-allow-methods", b"GET, POST"),
            # Allow whatever the page's library sends: the key decides what is permitted.
            (
                b"access-control-allow-headers",
                headers.get(b"access-control-request-headers", b"authorization, content-type"),
            ),
            (b"access-control-max-age", str(REMEMBERED_S).encode()),
        ]

    def send_with_headers(self, scope: Message, send: Send) -> Send:
        """Wrap ``send`` to add this origin's headers and drop an engine's own CORS headers."""
        origin = dict(scope["headers"]).get(b"origin")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = ((name.lower(), value) for name, value in message["headers"])
                headers = [pair for pair in pairs if not pair[0].startswith(_OURS)]
                message = {**message, "headers": [*headers, *self._headers_of_origin(origin)]}
            await send(message)

        return send_with_headers

    def _headers_of_origin(self, origin: bytes | None) -> Headers:
        # A cache must not give one origin's answer to another.
        vary = [(b"vary", b"Origin")] if self._origins else []
        if origin is None or origin not in self._origins:
            return vary
        origin_header = (b"access-control-allow-origin", origin)
        return [*vary, origin_header, (b"access-control-expose-headers", b"*")]
