"""Limits of simultaneous requests, in all and per key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from lockstep.onhost.gateway.configuration import BODIES, Limits
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal

RETRY_S = 5  #: Seconds until a full gateway is worth asking again.
#: Divisor of the share of slots that is reserved for clients with a key.
KEPT_PART = 8


class Slots:
    """Slots of running requests and their bodies."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = 0
        self._of: Counter[str] = Counter()
        self._taken_slots = 0

    @contextlib.contextmanager
    def hold_slot(self, key: str | None) -> Iterator[None]:
        """Hold a slot until the block ends.

        Args:
            key: Owner of the request's key; None if no key was required. Every account of the host
                can ask without one, so the last slots are reserved for people with a key.

        Raises:
            GatewayRefusal: All slots are taken.
        """
        most = self._limits.streams
        if self._all >= (most if key is not None else most - most // KEPT_PART):
            message = f"{self._all} requests are under way, which is the bound of this gateway"
            raise _full_refusal("streams", f"{message} (gateway.limits.streams)")
        if key is not None and self._of[key] >= self._limits.streams_per_key:
            message = (
                f"{self._of[key]} requests of {key} are under way, which is the bound of a key"
            )
            raise _full_refusal("streams_per_key", f"{message} (gateway.limits.streams_per_key)")
        self._all += 1
        if key is not None:
            self._of[key] += 1
        try:
            yield
        finally:
            self._all -= 1
            if key is not None:
                self._of[key] -= 1
                # Names from other gateways' requests must not accumulate.
                if not self._of[key]:
                    del self._of[key]

    @contextlib.contextmanager
    def hold_body_memory(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves memory for body bytes, held until the block ends.

        Raises:
            GatewayRefusal: Other requests have the memory (raised by that function).
        """
        bytes_taken = 0

        def take(size: int) -> None:
            nonlocal bytes_taken
            if self._taken_slots + size > self._limits.body_mib * 2**20 * BODIES:
                raise _full_refusal("bodies", "other requests with large bodies are under way")
            self._taken_slots += size
            bytes_taken += size

        try:
            yield take
        finally:
            self._taken_slots -= bytes_taken


def _full_refusal(reason: str, message: str) -> GatewayRefusal:
    return GatewayRefusal(429, message, reason, RETRY_S, close=True)
