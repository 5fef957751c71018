"""Connections that the gateway opens: to engines, to other gateways, to Prometheus."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import httpx2

#: A cable that is out ends a connection after so long, seconds: nothing else would tell.
SILENCE_S = 15
_PROBES = 3
#: What is raised for an answer that does not come, or is another one than was expected.
FAULTS = (httpx2.HTTPError, OSError, ValueError, LookupError, TypeError)

SocketOption = tuple[int, int, int]


def transport(options: Sequence[SocketOption] = ()) -> httpx2.AsyncHTTPTransport:
    """One connection per request: who listens there closes idle ones when it likes."""
    return httpx2.AsyncHTTPTransport(
        # Nobody here speaks TLS: no list of authorities is read.
        verify=False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        socket_options=list(options),
    )


async def document(transport: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> dict[str, Any]:
    """A JSON object; one of `FAULTS` where none comes."""
    answer = await transport.handle_async_request(request)
    try:
        text = await answer.aread()
    finally:
        await answer.aclose()
    found = json.loads(text) if answer.status_code == 200 else None
    if not isinstance(found, dict):
        raise ValueError(f"it answers {answer.status_code}")
    return found


def alive(unread: bool = True) -> list[SocketOption]:
    """Socket options by which a connection ends when the other host is gone without a word.

    `unread`: also when that host takes nothing for so long, which a client may.
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
