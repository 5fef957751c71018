"""How many requests may be under way at once, in all and of one key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from lockstep.onhost.gateway.configuration import BODIES, Limits
from lockstep.onhost.gateway.wire.answers import Refused

RETRY_S = 5  #: When a full gateway is worth asking again, seconds.
#: Places that nobody without a key may take, as a part of all.
KEPT_PART = 8


class Slots:
    """Requests under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = 0
        self._of: Counter[str] = Counter()
        self._held = 0

    @contextlib.contextmanager
    def one(self, key: str | None) -> Iterator[None]:
        """A place until the block ends; Refused where all are taken.

        `key`: whose came with the request; None where no key was asked for. Any account of the host
        asks without one, so the last places are for people with a key.
        """
        most = self._limits.streams
        if self._all >= (most if key is not None else most - most // KEPT_PART):
            said = f"{self._all} requests are under way, which is the bound of this gateway"
            raise _full("streams", f"{said} (gateway.limits.streams)")
        if key is not None and self._of[key] >= self._limits.streams_per_key:
            said = f"{self._of[key]} requests of {key} are under way, which is the bound of a key"
            raise _full("streams_per_key", f"{said} (gateway.limits.streams_per_key)")
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
    def body(self) -> Iterator[Callable[[int], None]]:
        """What takes room for more bytes of a body, which it has until the block ends.

        It raises Refused where other requests have the room.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if self._held + size > self._limits.body_mib * 2**20 * BODIES:
                raise _full("bodies", "other requests with large bodies are under way")
            self._held += size
            taken += size

        try:
            yield take
        finally:
            self._held -= taken


def _full(reason: str, said: str) -> Refused:
    return Refused(429, said, reason, RETRY_S, close=True)
