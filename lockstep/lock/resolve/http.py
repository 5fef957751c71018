"""HTTP for the resolvers: small answers, a proxy, one retry, failures in plain words."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests
from requests.utils import should_bypass_proxies

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy, Sources
from lockstep.onhost.fetch import login_in_url

# Seconds to connect, and seconds of silence while reading.
TIMEOUT = (10.0, 60.0)
# A manifest is some kB; the hub's list of files of the largest repositories is a few MB.
LARGEST_ANSWER = 64 * 2**20
# Seconds before the one retry.
PAUSE = 1.0
_WORTH_A_RETRY = frozenset({429, 500, 502, 503, 504})
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]+@")

T = TypeVar("T")


@dataclass(frozen=True)
class Network:
    """The addresses of an inventory's sources, and the proxy to them."""

    sources: Sources
    proxy: Proxy = field(default_factory=Proxy)


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP answer, read whole.

    Attributes:
        url: The address asked, without credentials.
        status: HTTP status code.
        headers: Case-insensitive.
        body: The content, decompressed.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the content as JSON. ResolveError for that of a captive portal or wrong server."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as fault:
            raise ResolveError(
                "the answer is not JSON",
                where=self.url,
                found=repr(self.body[:40]),
                remedy="Check the address under sources, and the proxy.",
            ) from fault


def ask(
    url: str,
    *,
    proxy: Proxy,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    method: str = "GET",
    follow: bool = True,
) -> HttpAnswer:
    """Make one request; the caller judges the status.

    Args:
        url: The address; a login in it is sent, and not sent on to another host.
        proxy: From the inventory; without one, this machine's own environment decides.
        headers: More headers.
        token: Bearer token; never sent on to another host, nor where the address holds a login.
        method: "GET" or "HEAD".
        follow: Whether redirects are followed.

    Raises:
        ResolveError: no answer, too large an answer, or an error of the server that stayed.
    """

    def whole() -> HttpAnswer:
        with _open(url, proxy, dict(headers or {}), token, method, follow) as response:
            return _read(url, response)

    return _refuse_server_errors(_twice(url, whole, lambda answer: answer.status in _WORTH_A_RETRY))


def _twice(url: str, take: Callable[[], T], worth_a_retry: Callable[[T], bool]) -> T:
    """Return the result of ``take``, tried again where it fails in a way that may pass."""
    for attempt in (1, 2):
        try:
            value = take()
        except requests.RequestException as fault:
            if attempt == 2 or isinstance(fault, requests.exceptions.SSLError | ValueError):
                raise _failure(fault, without_credentials(url)) from fault
        else:
            if attempt == 2 or not worth_a_retry(value):
                return value
        time.sleep(PAUSE)
    raise AssertionError("unreachable: the second attempt returns or raises")


def hash_download(url: str, *, proxy: Proxy) -> tuple[str, int]:
    """Return the SHA-256 and bytes of a large file, which is read once and not kept.

    Raises:
        ResolveError: it is not there, or breaks off twice.
    """

    def read() -> tuple[int, str | None, str, int]:
        digest, size = hashlib.sha256(), 0
        headers = {"Accept-Encoding": "identity"}
        with _open(url, proxy, headers, None, "GET", follow=True) as response:
            status, length_text = response.status_code, response.headers.get("Content-Length")
            for part in response.iter_content(2**20) if status == 200 else ():
                digest.update(part)
                size += len(part)
        return status, length_text, digest.hexdigest(), size

    status, stated_length, sha256, size = _twice(
        url, read, lambda outcome: outcome[0] in _WORTH_A_RETRY
    )
    if status == 200 and stated_length in (None, str(size)):
        return sha256, size
    raise ResolveError(
        "the file cannot be read for its hash",
        where=without_credentials(url),
        found=f"HTTP {status}, {size} of {stated_length} bytes",
        remedy="Check the address under sources, and run again.",
    )


def without_credentials(text: str) -> str:
    """Return ``text`` without user names and passwords in its addresses."""
    return _CREDENTIALS.sub("", text)


def _read(url: str, response: requests.Response) -> HttpAnswer:
    body = b""
    for part in response.iter_content(2**16):
        body += part
        if len(body) > LARGEST_ANSWER:
            raise ResolveError(
                "the answer is too large",
                where=without_credentials(url),
                found=f"more than {LARGEST_ANSWER >> 20} MiB",
                remedy="Check the address under sources.",
            )
    return HttpAnswer(without_credentials(url), response.status_code, response.headers, body)


@contextlib.contextmanager
def _open(
    url: str, proxy: Proxy, headers: dict[str, str], token: str | None, method: str, follow: bool
) -> Iterator[requests.Response]:
    """Open a response of which only the headers have been read."""
    try:
        address, login = login_in_url.split_off_login(url)
    except ValueError as fault:
        raise requests.exceptions.InvalidURL(str(fault)) from fault

    def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        # A login in an address is meant for that server; the token is for the public hub.
        request.headers.update(login or bearer)
        return request

    with (
        requests.Session() as session,
        session.request(
            method,
            address,
            headers={"User-Agent": "lockstep", **headers},
            # With this, requests leaves ~/.netrc alone, and drops it elsewhere.
            auth=authorize,
            proxies=_proxies(address, proxy),
            timeout=TIMEOUT,
            allow_redirects=follow,
            stream=True,
        ) as response,
    ):
        yield response


def _proxies(url: str, proxy: Proxy) -> dict[str, str] | None:
    if not proxy.http and not proxy.https:
        return None
    # Explicit values keep requests from using those of this machine's environment.
    if should_bypass_proxies(url, proxy.no):
        return {"http": "", "https": ""}
    return {"http": proxy.http or "", "https": proxy.https or ""}


def _refuse_server_errors(answer: HttpAnswer) -> HttpAnswer:
    status_text = f"HTTP {answer.status}"
    if answer.status == 407:
        description = "the proxy demands a login"
        remedy = "Give the proxy's address with user and password, or use one without."
    elif answer.status == 429:
        description = "the server refuses more requests for now"
        status_text += f", Retry-After {answer.headers.get('Retry-After', 'not stated')}"
        remedy = "Wait and run again; what is resolved already stays resolved."
    elif answer.status >= 500:
        description = "the server failed twice"
        remedy = "Run again later, or name a mirror under sources."
    else:
        return answer
    raise ResolveError(description, where=answer.url, found=status_text, remedy=remedy)


# Kind of failure → text for it; the first one that fits counts.
_FAILURES = {
    requests.exceptions.ProxyError: ("the proxy cannot be used", "Check proxy."),
    requests.exceptions.SSLError: (
        "the server's certificate is not accepted",
        "Check this machine's clock, and its certificates (REQUESTS_CA_BUNDLE).",
    ),
    requests.exceptions.Timeout: (
        "the server does not answer in time",
        "Check the network and proxy, or name a mirror under sources.",
    ),
    requests.exceptions.TooManyRedirects: (
        "the server redirects in a circle",
        "Check the address under sources.",
    ),
    requests.exceptions.ConnectionError: (
        "the server cannot be reached",
        "Check the network, the name and proxy, or name a mirror under sources.",
    ),
    requests.RequestException: ("the address cannot be asked", "Correct sources."),
}


def _failure(fault: requests.RequestException, url: str) -> ResolveError:
    description, remedy = next(
        failure for kind, failure in _FAILURES.items() if isinstance(fault, kind)
    )
    return ResolveError(description, where=url, found=_reason(fault), remedy=remedy)


def _reason(fault: BaseException) -> str:
    """Return the innermost cause in a few words, below requests, urllib3 and the system."""
    text = without_credentials(str(fault))
    # urllib3 puts the cause last: "HTTPConnectionPool(…): … (Caused by X('<object>: cause'))".
    text = text.rpartition("Caused by ")[2].rpartition(": ")[2] or text
    text = text.strip("()'\" ")[:80]
    # The last bracket may belong to urllib3, or to the cause itself.
    return text + ")" * (text.count("(") - text.count(")")) or type(fault).__name__
