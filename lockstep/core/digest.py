"""Hashes as names: of JSON-like contents, and of a git commit."""

from __future__ import annotations

import hashlib
import json


def digest(contents: object, digits: int) -> str:
    """Return the first ``digits`` hexadecimal digits of the SHA-256 of JSON-like contents."""
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def is_commit(text: str) -> bool:
    """Tell whether this is a whole git commit id: 40 lower-case hexadecimal digits."""
    return len(text) == 40 and set(text) <= set("0123456789abcdef")
