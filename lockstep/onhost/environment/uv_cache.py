"""Did uv fail because its own cache lost a part? Then it fails at every attempt until that goes.

Wording of uv 0.13.8, seen by taking parts out of a real cache (2026-11-21): an unpacked wheel that
is gone, one without its metadata, and a pointer to it that was cut off. Parts that uv makes up for
by itself, or takes as they are (a module that is gone), are no failure and cannot be seen here.
"""

from __future__ import annotations

import re
from pathlib import Path

# A failed build quotes paths of the cache too, in tracebacks, but never of an unpacked wheel that
# cannot be read.
_UNREADABLE = r"cause: failed to (?:open file|read directory|read from file) `{}/archive-v\d+/"
_NAMELESS = r"cause: The wheel is invalid: Missing \.dist-info directory"
_POINTER = r"cause: Failed to deserialize cache entry"


def broken(said: str, cache: Path) -> bool:
    """Whether the end of what uv wrote to standard error speaks of its cache, a folder."""
    # uv folds its messages to a width of its own.
    said = " ".join(said.split())
    patterns = (_UNREADABLE.format(re.escape(str(cache))), _NAMELESS, _POINTER)
    return any(re.search(pattern, said) for pattern in patterns)
