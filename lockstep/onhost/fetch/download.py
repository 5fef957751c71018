"""A download that goes on where the last one ended, also after a kill or a power cut.

huggingface_hub 2.x gives each attempt a temporary file of its own and starts at zero (read in
2.4.0, `_download_to_tmp_and_move`); with shards of 5 GB on a slow line that is hours.
"""

from __future__ import annotations

import functools
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lockstep.onhost.core import output
from lockstep.onhost.fetch import content

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 1024 * 1024
# A line that delivers nothing for so long is dead; the next attempt resumes.
_SILENCE_S = 60.0
_ATTEMPTS = 5


@dataclass(frozen=True)
class Source:
    """Where the bytes are now (a signed address may expire), with the headers to ask with."""

    url: str
    size: int | None
    headers: dict[str, str]


class Incomplete(OSError):
    """The transfer ended early, several times without a byte of progress."""


class Spoiled(OSError):
    """What came is not what its hash says, twice in a row."""


def download(source: Callable[[], Source], target: Path, name: str) -> None:
    """Fetch into `target` by way of `target`.incomplete, asking `source` before each attempt.

    What came is checked against `name`, the hash of the content; wrong bytes are fetched once more
    from the start.

    Raises Incomplete when five attempts in a row brought nothing, Spoiled, or the error that makes
    trying again useless.
    """
    spoiled = False
    partial = content.partial(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fruitless = 0
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        now = source()
        try:
            _attempt(now, partial)
        except (OSError, http.client.HTTPException) as error:
            if _is_final(error):
                raise
            grown = partial.exists() and partial.stat().st_size > before
            fruitless = 0 if grown else fruitless + 1
            if fruitless >= _ATTEMPTS:
                raise Incomplete(str(error) or type(error).__name__) from error
            time.sleep(min(30, 2**fruitless))
            continue
        if not content.matches(partial, name):
            partial.unlink()
            if spoiled:
                raise Spoiled("what came is not what its hash says, twice in a row")
            spoiled = True
            output.say(f"{name[:12]}: what came is not what its hash says; fetching it again")
            continue
        partial.replace(target)
        return


def _is_final(error: BaseException) -> bool:
    """Whether trying again cannot help: disk full, no rights, HTTP 4xx except a passing one."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 416, 429)
    network = (urllib.error.URLError, TimeoutError, ConnectionError, Incomplete)
    return isinstance(error, OSError) and not isinstance(error, network)


def _attempt(source: Source, partial: Path) -> None:
    with partial.open("ab") as file:
        have = file.tell()
        if source.size is not None and have >= source.size:
            if have == source.size:
                return
            file.truncate(0)
            have = 0
        headers = {**source.headers, "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            response = opened(urllib.request.Request(source.url, headers=headers))
        except urllib.error.HTTPError as error:
            if error.code == 416:
                file.truncate(0)
            raise
        with response:
            if have and response.status != 206:
                # The server gives the whole file: what we have is the same bytes once more.
                file.truncate(0)
                have = 0
            length = response.headers.get("Content-Length")
            size = have + int(length) if source.size is None and length else source.size
            while chunk := response.read(_CHUNK):
                file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        found = partial.stat().st_size
        if size is not None and found != size:
            raise Incomplete(f"connection closed at {found} of {size} bytes")


class _SameHostHeaders(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but tells the access token to no other host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and new.host != req.host:
            new.remove_header("Authorization")
        return new


def opened(request: urllib.request.Request) -> Any:
    """The answer to a request, through the proxy of the environment, redirects followed."""
    https = urllib.request.HTTPSHandler(context=_certificates())
    opener = urllib.request.build_opener(_SameHostHeaders(), https)
    return opener.open(request, timeout=_SILENCE_S)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The system's certificate authorities.

    Read once: it takes 40 ms of the processor, and an image may have 127 layers.
    """
    return ssl.create_default_context()


def several(
    work: Callable[[T], R],
    things: Iterable[T],
    workers: int = 4,
    done: Callable[[T, R], None] = lambda thing, result: None,
) -> None:
    """Do `work` with each of the things in their order, some at a time.

    `done` is told of each and what `work` gave, always by this thread. The first exception of
    either is raised, and none is begun after it.
    """
    with ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(work, each): each for each in things}
        try:
            for job in as_completed(jobs):
                done(jobs[job], job.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
