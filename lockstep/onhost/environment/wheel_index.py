"""Where a wheel is: package indexes asked by its file's name, over the simple interface (PEP 503).

An index page links files; the hash behind a link's `#sha256=` decides between files of one name.
Indexes without these (PyTorch's old pages) are believed, and what comes is checked anyway.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from lockstep.onhost.fetch import download, url_login

_HTML = "application/vnd.pypi.simple.v1+html, text/html;q=0.9"
_HASH = re.compile(r"sha256=([0-9a-f]{64})")
_ATTEMPTS = 3
#: What indexes answer about a project that they do not have; PyTorch's says 403.
_NOT_HERE = (401, 403, 404, 410)


class Absent(Exception):
    """No index has the file; `str()` says what each answered, without passwords."""


class Wheel(NamedTuple):
    """One file of the record of pins.

    `size` in bytes, None where the index does not say; `url` where it is, None: on an index.
    """

    name: str
    version: str
    file: str
    sha256: str
    size: int | None
    url: str | None = None


class Link(NamedTuple):
    """A file on an index page."""

    url: str
    sha256: str


class Indexes:
    """Package indexes in the order in which they are asked; safe to share among threads."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._indexes = [_Index(url) for url in dict.fromkeys(urls)]

    def source(self, wheel: Wheel) -> download.Source:
        """Where the bytes are. Absent, or OSError when an index cannot be asked."""
        believed: download.Source | None = None
        told = []
        for index in self._indexes:
            links = index.links(wheel.name)
            told.append(f"{index.shown}: " + ("no such project" if links is None else "not there"))
            for link in links or []:
                if unquote(urlsplit(link.url).path.rpartition("/")[2]) != wheel.file:
                    continue
                source = download.Source(link.url, wheel.size, index.headers(link.url))
                if link.sha256 == wheel.sha256:
                    return source
                if link.sha256:
                    told[-1] = f"{index.shown}: there with another hash"
                else:
                    believed = believed or source
        if believed is None:
            raise Absent("; ".join(told) or "no index is named")
        return believed


class _Index:
    """One index; its pages are read once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._base = url_login.apart(url)[0].rstrip("/")
        self._pages: dict[str, list[Link] | None] = {}
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        """Its address without a password."""
        return self._base

    def headers(self, url: str) -> dict[str, str]:
        """What to ask with: a password is for the index's own host."""
        return url_login.header(url, self._url)

    def links(self, project: str) -> list[Link] | None:
        """The files of a project, None where the index does not have it."""
        with self._lock:
            known = project in self._pages
        if not known:
            found = self._read(f"{self._base}/{project}/")
            with self._lock:
                self._pages[project] = found
        return self._pages[project]

    def _read(self, url: str) -> list[Link] | None:
        for attempt in range(1, _ATTEMPTS + 1):
            request = urllib.request.Request(url, headers={"Accept": _HTML, **self.headers(url)})
            try:
                with download.opened(request) as response:
                    page = _Page(response.geturl())
                    page.feed(response.read().decode("utf-8", "replace"))
                    return page.links
            except urllib.error.HTTPError as error:
                if error.code in _NOT_HERE:
                    return None
                if attempt == _ATTEMPTS or error.code < 500:
                    raise OSError(f"{url}: HTTP {error.code}") from error
            except OSError as error:
                if attempt == _ATTEMPTS:
                    raise OSError(f"{url}: {getattr(error, 'reason', error)}") from error
            time.sleep(2.0**attempt)
        return None


class _Page(HTMLParser):
    """The links of one page."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._base = url
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a link leads."""
        target = dict(attrs).get("href")
        if not target:
            return
        if tag == "base":
            self._base = urljoin(self._base, target)
        elif tag == "a":
            url, _, fragment = urljoin(self._base, target).partition("#")
            found = _HASH.search(fragment)
            self.links.append(Link(url, found[1] if found else ""))
