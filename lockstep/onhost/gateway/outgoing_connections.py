"""Connections that the gateway opens: to engines, other gateways and Prometheus."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import httpx2

#: Seconds after which a connection over an unplugged cable ends; nothing else would detect it.
SILENCE_S = 15
_PROBES = 3
#: Exceptions for a missing or unexpected answer.
FAULTS = (httpx2.HTTPError, OSError, ValueError, LookupError, TypeError)

SocketOption = tuple[int, int, int]


def http_transport(
    options: Sequence[SocketOption] = (), tls: ssl.SSLContext | None = None
) -> httpx2.AsyncHTTPTransport:
    """Return a transport with one connection per request: servers close idle ones at any time.

    `tls` is the client's side where servers speak TLS.
    """
    return httpx2.AsyncHTTPTransport(
        # Without one of our own, loading a list of authorities would be wasted time.
        verify=tls or False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        socket_options=list(options),
    )


async def fetch_json_object(
    transport: httpx2.AsyncHTTPTransport, request: httpx2.Request
) -> dict[str, Any]:
    """Return the JSON object that answers a request; raise one of `FAULTS` if none comes."""
    answer = await transport.handle_async_request(request)
    try:
        text = await answer.aread()
    finally:
        await answer.aclose()
    document_found = json.loads(text) if answer.status_code == 200 else None
    if not isinstance(document_found, dict):
        raise ValueError(f"it answers {answer.status_code}")
    return document_found


def dead_peer_socket_options(unread: bool = True) -> list[SocketOption]:
    """Return socket options that end a connection when the other host has silently gone.

    With `unread`, also when that host reads nothing for so long, which a client may do.
    """
    options = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S // (_PROBES + 1)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // (_PROBES + 1)),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    ]
    if unread:
        options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000))
    return options
