"""The HTTP client of the programs on a Spark: one server alone, or an origin by the proxy."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from lockstep.onhost.core import errors

#: The errors of a request without an answer.
FAULTS = (OSError, HTTPException)
# A line that delivers nothing for so long is dead.
_SILENCE_S = 60.0

R = TypeVar("R")


class ExpectedPeer(NamedTuple):
    """The client's own side of TLS, and a check of who answers, which raises SSLError."""

    context: ssl.SSLContext
    check: Callable[[Any], None]


class ServerAnswer(NamedTuple):
    """An answer that was read whole; header names are case-insensitive."""

    status: int
    headers: Message
    body: bytes


def ask(url: str, *request: Any, most: int | None = None, **more: Any) -> ServerAnswer:
    """Return the answer of one server, at most `most` bytes of it; else as `open_answer`."""
    with open_answer(url, *request, **more) as response:
        return ServerAnswer(response.status, response.headers, response.read(most))


@contextlib.contextmanager
def open_answer(
    url: str,
    silence_s: float,
    method: str = "GET",
    body: bytes | Iterable[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    unix_socket: Path | str = "",
    source: str = "",
    connect_s: float | None = None,
    peer: ExpectedPeer | None = None,
) -> Iterator[HTTPResponse]:
    """Yield the answer of one server, of any status: through no proxy, after no redirect.

    Args:
        body: An iterable is sent in chunks.
        unix_socket: The server's socket; the URL's host is only a name then.
        source: The own address to ask from.
        connect_s: Seconds until a connection must stand; as `silence_s` if not given.
        peer: The Spark that is to answer, at an https URL.

    Raises:
        OSError, HTTPException: There is no answer (`FAULTS`).
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise http.client.InvalidURL(f"{url}: {error}") from error
    where = parts.netloc.rpartition("@")[2]
    own, limit_s = (source, 0) if source else None, connect_s or silence_s
    connection = (
        http.client.HTTPSConnection(
            where, timeout=limit_s, source_address=own, context=peer.context if peer else None
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(where, timeout=limit_s, source_address=own)
    )
    with contextlib.closing(connection):
        if unix_socket:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(silence_s)
            connection.sock.connect(str(unix_socket))
        else:
            try:
                connection.connect()
            except UnicodeError as error:
                # A name that DNS cannot have: two dots, or a part of more than 63 letters.
                raise http.client.InvalidURL(f"{url}: {error}") from error
            connection.sock.settimeout(silence_s)
        if peer:
            peer.check(connection.sock)
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request(method, target, body, headers or {})
        yield connection.getresponse()


def open_answer_through_proxy(url: str, headers: Mapping[str, str], method: str = "GET") -> Any:
    """Return the open answer of an origin: through the environment's proxy, after any redirects.

    Raises:
        HTTPError: It answers with an error.
        URLError, TimeoutError, ConnectionError: As `call_network`.
    """
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    https = urllib.request.HTTPSHandler(context=_certificates())
    opener = urllib.request.build_opener(_SameHostHeaders(), https)
    return call_with_network_errors(opener.open, request, timeout=_SILENCE_S)


def call_with_network_errors(call: Callable[..., R], *arguments: Any, **options: Any) -> R:
    """Return the result of a call that only the network can fail.

    Raises:
        URLError, TimeoutError, ConnectionError: It failed. A fault of TLS or of a route is a
            ConnectionError, too, which tells it from one of the disk.
    """
    try:
        return call(*arguments, **options)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        raise
    except OSError as error:
        raise ConnectionError(errors.why(error)) from error


class _SameHostHeaders(urllib.request.HTTPRedirectHandler):
    """A handler that follows redirects, but gives the access token to no other host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and new.host != req.host:
            new.remove_header("Authorization")
        return new


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the system's certificate authorities.

    They are read once: it takes 40 ms of the processor, and an image may have 127 layers.
    """
    return ssl.create_default_context()
