"""Words of a command line."""

from __future__ import annotations

import re

_SHORT_OR_LONG = re.compile(r"--[A-Za-z]|-[A-Za-z]+(?:[.=]|$)")


def is_flag(word: str) -> bool:
    """Whether a word of a command line starts a flag (``-1`` is a value)."""
    return bool(_SHORT_OR_LONG.match(word))
