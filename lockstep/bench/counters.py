"""Figures of speculation, from an engine's own counters."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.onhost.engines import Counters


@dataclass(frozen=True)
class Speculation:
    """What drafting brought between two looks.

    Attributes:
        drafted: Tokens drafted; None where the engine has no totals.
        accepted: Of these, tokens accepted.
        acceptance: Share of drafted tokens that were accepted (0 to 1).
        tokens_per_step: Tokens per step of the large model, its own one included.
    """

    drafted: int | None
    accepted: int | None
    acceptance: float | None
    tokens_per_step: float | None


def speculation(before: Counters, after: Counters) -> Speculation | None:
    """None where nothing was drafted, or the engine does not say."""
    if None in (before.drafted, after.drafted, before.drafts, after.drafts):
        step = after.tokens_per_step
        return Speculation(None, None, None, step) if step else None
    drafted = (after.drafted or 0) - (before.drafted or 0)
    accepted = (after.accepted or 0) - (before.accepted or 0)
    steps = (after.drafts or 0) - (before.drafts or 0)
    if drafted <= 0 or steps <= 0:
        return None
    return Speculation(drafted, accepted, accepted / drafted, 1 + accepted / steps)
