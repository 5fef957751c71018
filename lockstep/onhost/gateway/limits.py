"""How many requests may be under way at once, in all and of one key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from lockstep.onhost.gateway.configuration import Limits
from lockstep.onhost.gateway.wire.answers import Refused

#: When a full gateway is worth asking again, seconds.
RETRY_S = 5
#: Bodies that are held at once, as a multiple of the largest one.
_BODIES = 8


class Slots:
    """Requests under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = 0
        self._of: Counter[str] = Counter()
        self._held = 0

    @contextlib.contextmanager
    def one(self, key: str | None) -> Iterator[None]:
        """A place until the block ends.

        Args:
            key: Whose key came with the request; None where no key was asked for.

        Raises:
            Refused: all places are taken.
        """
        if self._all >= self._limits.streams:
            raise Refused(
                429,
                f"{self._all} requests are under way, which is the bound of this gateway "
                "(gateway.limits.streams)",
                "streams",
                RETRY_S,
                close=True,
            )
        if key is not None and self._of[key] >= self._limits.streams_per_key:
            raise Refused(
                429,
                f"{self._of[key]} requests of {key} are under way, which is the bound of a key "
                "(gateway.limits.streams_per_key)",
                "streams_per_key",
                RETRY_S,
                close=True,
            )
        self._all += 1
        if key is not None:
            self._of[key] += 1
        try:
            yield
        finally:
            self._all -= 1
            if key is not None:
                self._of[key] -= 1
                # Names that came with another gateway's requests must not add up.
                if not self._of[key]:
                    del self._of[key]

    @contextlib.contextmanager
    def body(self, size: int) -> Iterator[None]:
        """Room for a body until the block ends. Refused where others have it.

        Args:
            size: Bytes, as the client announces them; for a body without an end the most.
        """
        if self._held and self._held + size > self._limits.body_mib * 2**20 * _BODIES:
            raise Refused(
                429, "other requests with large bodies are being read", "bodies", 1, close=True
            )
        self._held += size
        try:
            yield
        finally:
            self._held -= size
