"""Messages between the members of a cluster: sealed with a key that all of them have.

Every request carries its time, a nonce and an HMAC-SHA256 over cluster, recipient, verb, time,
nonce and body; the answer's seal covers the request's nonce, so an old answer fits no new request.
Nothing is secret in them, so they are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lockstep.onhost.core import errors, layout

#: How old a request may be, and how far two clocks may be apart, seconds.
WINDOW_S = 60.0
TIME, NONCE, SEAL = "X-Lockstep-Time", "X-Lockstep-Nonce", "X-Lockstep-Seal"
_LEAST_KEY = 32


class Refused(Exception):
    """A request whose seal, time or nonce is wrong; `known` when the sender has the key."""

    def __init__(self, why: str, known: bool = False) -> None:
        super().__init__(why)
        self.known = known


def key(paths: layout.Paths, cluster: str) -> bytes:
    """The cluster's key: given by systemd to the agent, else from its file; Problem without."""
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    name = f"cluster-{cluster}"
    path = Path(given) / name if given else paths.secrets / f"{name}.key"
    try:
        found = path.read_bytes().strip()
    except OSError as error:
        raise errors.Problem(
            f"key of cluster {cluster}: {path}: {error.strerror}. Remedy: run the deploy"
        ) from error
    if len(found) < _LEAST_KEY:
        raise errors.Problem(
            f"key of cluster {cluster}: {path}: expected {_LEAST_KEY} characters or more, found "
            f"{len(found)}. Remedy: delete it on every member and run the deploy"
        )
    return found


def request(key: bytes, cluster: str, recipient: str, verb: str, body: bytes) -> dict[str, str]:
    """Headers of a new request to the member called `recipient`."""
    stamp, nonce = f"{time.time():.3f}", secrets.token_hex(16)
    parts = ("request", cluster, recipient, verb, stamp, nonce)
    return {TIME: stamp, NONCE: nonce, SEAL: _seal(key, parts, body)}


def answer(key: bytes, nonce: str, status: int, body: bytes) -> str:
    """The seal of an answer to the request of that nonce."""
    return _seal(key, ("answer", nonce, str(status)), body)


def fits(seal: str, key: bytes, nonce: str, status: int, body: bytes) -> bool:
    """Whether an answer's seal is right."""
    return hmac.compare_digest(seal.encode(), answer(key, nonce, status, body).encode())


def _seal(key: bytes, parts: tuple[str, ...], body: bytes) -> str:
    text = "\n".join((*parts, hashlib.sha256(body).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Lets each request in once. `now` is Unix time."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()
        # What was sealed before this process began may have been let in by the one before it.
        self._began = now()

    def check(
        self,
        key: bytes,
        cluster: str,
        recipient: str,
        verb: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        """Refused unless the request is sealed with `key`, of now, and new."""
        stamp, nonce = headers.get(TIME, ""), headers.get(NONCE, "")
        parts = ("request", cluster, recipient, verb, stamp, nonce)
        wanted = _seal(key, parts, body)
        if not hmac.compare_digest(headers.get(SEAL, "").encode(), wanted.encode()):
            raise Refused("wrong seal: the two have different keys")
        now, sent = self._now(), float(stamp)
        if abs(now - sent) > WINDOW_S:
            raise Refused(
                f"a message of {abs(now - sent):.0f} s {'ago' if sent < now else 'ahead'}, at most "
                f"{WINDOW_S:.0f} are taken: the clocks differ. Remedy: timedatectl on both",
                known=True,
            )
        if sent <= self._began:
            raise Refused("sealed before this agent began: ask again", known=True)
        with self._lock:
            self._seen = {each: until for each, until in self._seen.items() if until > now}
            if nonce in self._seen:
                raise Refused("this message has been taken before", known=True)
            # Until it is too old, also by a clock that runs ahead.
            self._seen[nonce] = now + 2 * WINDOW_S
