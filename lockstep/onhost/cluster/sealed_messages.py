"""Messages between the members of a cluster: sealed with a key that all of them have.

Every request carries a ticket of its recipient, a nonce and an HMAC-SHA256 over cluster, recipient,
verb, ticket, nonce and body. The answer's seal covers the request's nonce, so an old answer fits no
new request. A ticket is the recipient's process and the time by its own clock, and comes with each
of its answers: no two clocks are compared. Nothing in them is secret, so they are not encrypted.
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

#: Seconds for which a ticket is valid, by the clock of the host that gave it.
TICKET_S = 60.0
TICKET, NONCE, SEAL = "X-Lockstep-Ticket", "X-Lockstep-Nonce", "X-Lockstep-Seal"
_LEAST_KEY = 32


class WrongSeal(Exception):
    """A request with a wrong seal: its sender does not have our key."""


class RepeatedRequest(Exception):
    """A request of somebody with the key that was already accepted."""


class StaleTicket(Exception):
    """A request of somebody with the key, but without a valid ticket of ours."""


def key(paths: layout.Paths, cluster: str) -> bytes:
    """Return the cluster's key.

    The agent gets it from systemd as a credential, other programs read its file. Raises Problem
    without a usable key.
    """
    credentials_folder = os.environ.get("CREDENTIALS_DIRECTORY")
    name = f"cluster-{cluster}"
    path = Path(credentials_folder) / name if credentials_folder else paths.secrets / f"{name}.key"
    try:
        cluster_key = path.read_bytes().strip()
    except OSError as error:
        raise errors.Problem(
            f"key of cluster {cluster}: {path}: {error.strerror}. Remedy: run the deploy"
        ) from error
    if len(cluster_key) < _LEAST_KEY:
        raise errors.Problem(
            f"key of cluster {cluster}: {path}: expected {_LEAST_KEY} characters or more, found "
            f"{len(cluster_key)}. Remedy: delete it on every member and run the deploy"
        )
    return cluster_key


def sealed_request_headers(
    key: bytes, cluster: str, recipient: str, verb: str, body: bytes, ticket: str
) -> dict[str, str]:
    """Return headers of a new request to the member `recipient`; `ticket` is "" for the first."""
    nonce = secrets.token_hex(16)
    parts = ("request", cluster, recipient, verb, ticket, nonce)
    return {TICKET: ticket, NONCE: nonce, SEAL: _seal(key, parts, body)}


def answer_seal(key: bytes, nonce: str, status: int, ticket: str, body: bytes) -> str:
    """Return the seal of an answer to the request with that nonce, and with the next ticket."""
    return _seal(key, ("answer", nonce, str(status), ticket), body)


def is_answer_seal(
    seal: str, key: bytes, nonce: str, status: int, ticket: str, body: bytes
) -> bool:
    """Tell whether an answer's seal is right."""
    return hmac.compare_digest(
        seal.encode(), answer_seal(key, nonce, status, ticket, body).encode()
    )


def _seal(key: bytes, parts: tuple[str, ...], body: bytes) -> str:
    text = "\n".join((*parts, hashlib.sha256(body).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class SealVerifier:
    """A verifier that accepts each request once; `now` is in seconds and only goes forward."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        # Each process has its own id, so tickets of an earlier process are invalid.
        self._process = secrets.token_hex(16)
        self._seen_nonces: dict[str, float] = {}
        self._lock = threading.Lock()

    def ticket(self) -> str:
        """Return a ticket with which a request is accepted from now on."""
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
        """Accept a request that is sealed with `key`, has a valid ticket, and is new.

        Raises:
            WrongSeal, Stale or RepeatedRequest: The request is not accepted.
        """
        ticket, nonce = headers.get(TICKET, ""), headers.get(NONCE, "")
        parts = ("request", cluster, recipient, verb, ticket, nonce)
        right_seal = _seal(key, parts, body)
        if not hmac.compare_digest(headers.get(SEAL, "").encode(), right_seal.encode()):
            raise WrongSeal("wrong seal: the two have different keys")
        now, until = self._now(), self._until(ticket)
        if until <= now:
            raise StaleTicket("its ticket does not serve any more: ask again with the one given")
        with self._lock:
            self._seen_nonces = {
                seen_nonce: last for seen_nonce, last in self._seen_nonces.items() if last > now
            }
            if nonce in self._seen_nonces:
                raise RepeatedRequest("this message has been taken before")
            self._seen_nonces[nonce] = until

    def _until(self, ticket: str) -> float:
        """Return the end of a ticket's validity; minus infinity if this process did not give it."""
        process, _, ticket_time = ticket.partition(" ")
        if process != self._process:
            return float("-inf")
        return float(ticket_time) + TICKET_S
