"""Failures of uv because its own cache lost a part: uv fails until the cache is removed.

Wording of uv 0.13.8, seen by taking parts out of a real cache (2026-11-21): an unpacked wheel that
is gone, one without its metadata, and a pointer to it that was cut off. uv restores some parts on
its own, or takes them as they are (a module that is gone). Those are no failure and cannot be seen
here.
"""

from __future__ import annotations

import re
from pathlib import Path

# A failed build quotes paths of the cache too, in tracebacks, but never that of an unpacked wheel
# that cannot be read.
_UNREADABLE = r"cause: failed to (?:open file|read directory|read from file) `{}/archive-v\d+/"
_NAMELESS = r"cause: The wheel is invalid: Missing \.dist-info directory"
_POINTER = r"cause: Failed to deserialize cache entry"


def is_broken(error_text: str, cache: Path) -> bool:
    """Tell whether the end of uv's standard error blames its cache, a folder."""
    # uv folds its messages to a width of its own.
    error_text = " ".join(error_text.split())
    patterns = (_UNREADABLE.format(re.escape(str(cache))), _NAMELESS, _POINTER)
    return any(re.search(pattern, error_text) for pattern in patterns)
