"""Messages between the members of a cluster: sealed with a key that all of them have.

Every request carries a ticket of its recipient, a nonce and an HMAC-SHA256 over cluster, recipient,
verb, ticket, nonce and body; the answer's seal covers the request's nonce, so an old answer fits no
new request. A ticket is the recipient's process and the time by its own clock, and comes with each
of its answers: no two clocks are compared. Nothing is secret in them, so they are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

from lockstep.onhost.core import clock, errors, layout

#: For how long a ticket serves, seconds by the clock of who gave it.
TICKET_S = 60.0
TICKET, NONCE, SEAL = "X-Lockstep-Ticket", "X-Lockstep-Nonce", "X-Lockstep-Seal"
_LEAST_KEY = 32


class Refused(Exception):
    """A request whose seal is wrong: its sender has not our key."""


class Repeated(Exception):
    """A request of somebody with the key that was taken before."""


class Stale(Exception):
    """A request of somebody with the key and without a ticket of ours that still serves."""


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


def request(
    key: bytes, cluster: str, recipient: str, verb: str, body: bytes, ticket: str
) -> dict[str, str]:
    """Headers of a new request to the member called `recipient`; "" where it gave no ticket yet."""
    nonce = secrets.token_hex(16)
    parts = ("request", cluster, recipient, verb, ticket, nonce)
    return {TICKET: ticket, NONCE: nonce, SEAL: _seal(key, parts, body)}


def answer(key: bytes, nonce: str, status: int, ticket: str, body: bytes) -> str:
    """The seal of an answer to the request of that nonce, with the ticket for the next one."""
    return _seal(key, ("answer", nonce, str(status), ticket), body)


def fits(seal: str, key: bytes, nonce: str, status: int, ticket: str, body: bytes) -> bool:
    """Whether an answer's seal is right."""
    return hmac.compare_digest(seal.encode(), answer(key, nonce, status, ticket, body).encode())


def _seal(key: bytes, parts: tuple[str, ...], body: bytes) -> str:
    text = "\n".join((*parts, hashlib.sha256(body).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Guard:
    """Lets each request in once. `now` is of a clock that only goes forward, seconds."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        # What the process before this one has let in has another.
        self._process = secrets.token_hex(16)
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def ticket(self) -> str:
        """What lets a request in from now on."""
        return f"{self._process} {self._now():.3f}"

    def check(
        self,
        key: bytes,
        cluster: str,
        recipient: str,
        verb: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        """Let a request in that is sealed with `key`, has a ticket that serves, and is new.

        Raises:
            Refused, Stale or Repeated: it is not.
        """
        ticket, nonce = headers.get(TICKET, ""), headers.get(NONCE, "")
        parts = ("request", cluster, recipient, verb, ticket, nonce)
        wanted = _seal(key, parts, body)
        if not hmac.compare_digest(headers.get(SEAL, "").encode(), wanted.encode()):
            raise Refused("wrong seal: the two have different keys")
        now, until = self._now(), self._until(ticket)
        if until <= now:
            raise Stale("its ticket does not serve any more: ask again with the one given")
        with self._lock:
            self._seen = {each: last for each, last in self._seen.items() if last > now}
            if nonce in self._seen:
                raise Repeated("this message has been taken before")
            self._seen[nonce] = until

    def _until(self, ticket: str) -> float:
        """When a ticket ends; minus infinity for one that this process has not given."""
        process, _, given = ticket.partition(" ")
        if process != self._process:
            return float("-inf")
        return float(given) + TICKET_S
