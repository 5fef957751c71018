"""Downloads that resume from where they ended, also after a kill or a power cut.

huggingface_hub 2.x gives each attempt a temporary file of its own and starts at zero (read in
2.4.0, `_download_to_tmp_and_move`); with shards of 5 GB on a slow line that costs hours.
"""

from __future__ import annotations

import os
import time
import urllib.error
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lockstep.onhost.core import event_lines, http_client
from lockstep.onhost.fetch import blob_files

T = TypeVar("T")
R = TypeVar("R")

_CHUNK = 1024 * 1024
_ATTEMPTS = 5


@dataclass(frozen=True)
class DownloadSource:
    """The present address of the bytes (a signed one may expire), and the headers to send."""

    url: str
    size: int | None
    headers: dict[str, str]


class IncompleteTransfer(OSError):
    """A transfer that ended early, several times without a byte of progress."""


class SpoiledDownload(OSError):
    """A download whose content does not match its hash, twice in a row."""


def download(source: Callable[[], DownloadSource], target: Path, name: str) -> None:
    """Fetch into `target` by way of `target`.incomplete; call `source` before each attempt.

    The content is checked against its hash `name`; wrong bytes are fetched once more from the
    start.

    Raises:
        IncompleteTransfer: Five attempts in a row brought nothing.
        SpoiledDownload: The content was wrong twice in a row.
        OSError, HTTPException: Trying again is useless.
    """
    is_spoiled = False
    partial = blob_files.partial_path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fruitless = 0
    while True:
        earlier_bytes = partial.stat().st_size if partial.exists() else 0
        try:
            _attempt(source(), partial)
        except http_client.FAULTS as error:
            if is_final(error):
                raise
            has_grown = partial.exists() and partial.stat().st_size > earlier_bytes
            fruitless = 0 if has_grown else fruitless + 1
            if fruitless >= _ATTEMPTS:
                raise IncompleteTransfer(str(error) or type(error).__name__) from error
            time.sleep(min(30, 2**fruitless))
            continue
        if not blob_files.matches(partial, name):
            partial.unlink()
            if is_spoiled:
                raise SpoiledDownload("what came is not what its hash says, twice in a row")
            is_spoiled = True
            event_lines.say(f"{name[:12]}: what came is not what its hash says; fetching it again")
            continue
        partial.replace(target)
        return


def is_final(error: BaseException) -> bool:
    """Tell whether trying again is useless: disk full, no rights, HTTP 4xx but passing ones."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 416, 429)
    network = (urllib.error.URLError, TimeoutError, ConnectionError, IncompleteTransfer)
    return isinstance(error, OSError) and not isinstance(error, network)


def _attempt(source: DownloadSource, partial: Path) -> None:
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
            response = http_client.open_answer_through_proxy(source.url, headers)
        except urllib.error.HTTPError as error:
            if error.code == 416:
                file.truncate(0)
            raise
        with response:
            if have and response.status != 206:
                # The server gives the whole file, so our part would come once more.
                file.truncate(0)
                have = 0
            length = response.headers.get("Content-Length")
            size = have + int(length) if source.size is None and length else source.size
            while chunk := http_client.call_with_network_errors(response.read, _CHUNK):
                file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        present_bytes = partial.stat().st_size
        if size is not None and present_bytes != size:
            raise IncompleteTransfer(f"connection closed at {present_bytes} of {size} bytes")


def work_through(
    work: Callable[[T], R],
    things: Iterable[T],
    workers: int = 4,
    on_result: Callable[[T, R], None] = lambda thing, result: None,
) -> None:
    """Do `work` with each of the things in their order, some at a time.

    This thread calls `on_result` with each thing and its result. The first exception of either is
    raised, and no further work begins after it.
    """
    with ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(work, one_thing): one_thing for one_thing in things}
        try:
            for job in as_completed(jobs):
                on_result(jobs[job], job.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
