"""The API key of a port that other machines can reach: who may ask what."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from lockstep.onhost.core import errors

#: Name of the systemd credential that holds the key.
CREDENTIAL = "api-key"
# Clients of OpenAI's API send the first, those of Anthropic's the second.
HEADERS = (b"authorization", b"x-api-key")
# Green or not is all that it says, and load balancers ask without a key.
_FREE = b"/health"
# Engines have further paths for whoever runs them: weights, profiles, shutdown.
_SERVED = (b"/v1/", b"/metrics")


class Guard:
    """Judges requests by a key, of which only the digest is kept."""

    def __init__(self, key: str) -> None:
        self._digest = _digest(key.encode())

    def refusal(self, method: str, path: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
        """The HTTP status to refuse a request with; 0 lets it pass.

        Args:
            method: As on the wire ("GET").
            path: As on the wire, quoted, without the query.
            headers: Names in lower case, with values.
        """
        if path == _FREE and method in ("GET", "HEAD"):
            return 0
        if not any(self._is_key(name, value) for name, value in headers):
            return 401
        return 0 if path.startswith(_SERVED) and b"/." not in path else 404

    def _is_key(self, name: bytes, value: bytes) -> bool:
        if name == HEADERS[0]:
            scheme, _, value = value.partition(b" ")
            if scheme.lower() != b"bearer":
                return False
        # Digests have one length, so the time that this takes says nothing about the key.
        return name in HEADERS and hmac.compare_digest(_digest(value.strip()), self._digest)


def given() -> Guard:
    """The guard with the key that systemd hands over (LoadCredential=).

    Problem where there is none: a port without its key must not open.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise errors.Problem("no API key: expected LoadCredential= in the unit. Deploy again")
    path = Path(folder) / CREDENTIAL
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise errors.Problem(f"no API key: {path}: {error.strerror}. Deploy again") from error
    if not key:
        raise errors.Problem(f"no API key: {path} is empty. Remove the key's file and deploy again")
    return Guard(key)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
