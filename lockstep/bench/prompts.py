"""Prompts by shape. Speculation rewards predictable text, so one speed alone says little.

Each prompt begins with a random mark, so that no cache can answer it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from lockstep.onhost.rollout import speed_prompt

#: The shape of the headline rate: "256 tokens with a real technical prompt" (article 004).
TECHNICAL = "technical"

SHAPES: Mapping[str, str] = {
    # The gate of a deploy measures with the same prompt.
    TECHNICAL: speed_prompt.PROMPT,
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
    """Return eight random hexadecimal digits that no earlier prompt had."""
    return secrets.token_hex(4)


def user(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return one user message with a mark of its own."""
    return ({"role": "user", "content": f"[{mark()}] {text}"},)


def filler(words: int) -> str:
    """Return so many words that differ from the first one on, for prompts of a chosen length."""
    vocabulary, seed = _WORDS.split(), int(mark(), 16)
    chosen_words = []
    for _ in range(words):
        # This is the generator of Numerical Recipes. Text for a prefill needs no better one.
        seed = (1664525 * seed + 1013904223) % 2**32
        chosen_words.append(vocabulary[(seed >> 16) % len(vocabulary)])
    return " ".join(chosen_words)
