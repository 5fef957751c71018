"""One line of JSON per request, so that bytes fetched can be counted afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """One answered request. ``sent`` is the size of the answer's body in bytes."""

    time: float
    client: str
    method: str
    path: str
    status: int
    body_bytes: int


class AccessLog:
    """Append requests to a file; safe to share among threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def add(self, client: str, method: str, path: str, status: int, body_bytes: int) -> None:
        entry = Request(round(time.time(), 3), client, method, path, status, body_bytes)
        with self._lock:
            self._file.write(json.dumps(asdict(entry)) + "\n")


def log_path(state: Path, service: str) -> Path:
    """The path of the access log of the service with that name."""
    return state / "log" / f"{service}-access.jsonl"


def requests(state: Path, service: str) -> Iterator[Request]:
    """Every request that the service has answered so far, oldest first; none if it never ran."""
    path = log_path(state, service)
    if not path.exists():
        return
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield Request(**json.loads(line))


def sent_bytes(
    state: Path, service: str, is_wanted: Callable[[Request], bool] = lambda request: True
) -> int:
    """Bytes of bodies that the service has sent for the requests that ``is_wanted`` accepts."""
    return sum(request.body_bytes for request in requests(state, service) if is_wanted(request))
