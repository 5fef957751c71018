"""Prompts by shape. Speculation rewards text that a draft can guess, so one speed is no speed.

Each prompt begins with a mark of its own: no cache may answer twice, and none has seen it before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from lockstep.onhost.rollout import technical

#: The shape whose rate is the headline: "256 tokens with a real technical prompt" (article 004).
TECHNICAL = "technical"

SHAPES: Mapping[str, str] = {
    # The gate of a deploy measures with it too.
    TECHNICAL: technical.PROMPT,
    "prose": (
        "Write a quiet short story about a lighthouse keeper who repairs an old radio in winter. "
        "Long sentences, no dialogue, no title."
    ),
    "code": (
        "Write a Python function that sorts a list by merge sort, with a detailed comment above "
        "each step, and then a second one that does it without recursion. Code only."
    ),
    "counting": (
        "Continue this counting sequence, one number after the other, separated by commas, and do "
        "not stop: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,"
    ),
}

_WORDS = (
    "bandwidth router expert cache token draft kernel page unit socket digest lock drift probe "
    "canary fallback memory stream latency throughput scheduler tensor"
)


def mark() -> str:
    """Eight hexadecimal digits that no prompt had before."""
    return secrets.token_hex(4)


def user(text: str) -> tuple[Mapping[str, Any], ...]:
    """One user message with a mark of its own."""
    return ({"role": "user", "content": f"[{mark()}] {text}"},)


def filler(words: int) -> str:
    """So many words that differ from the first one on, for prompts of a chosen length."""
    known, seed = _WORDS.split(), int(mark(), 16)
    chosen = []
    for _ in range(words):
        # Numerical Recipes' generator: text for a prefill needs no better.
        seed = (1664525 * seed + 1013904223) % 2**32
        chosen.append(known[(seed >> 16) % len(known)])
    return " ".join(chosen)
