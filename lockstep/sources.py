"""Names as upstream spells them → where this site takes them from."""

from __future__ import annotations

from lockstep.settings import Sources


def mirrored(url: str, sources: Sources) -> str:
    """A git URL with the longest prefix that `sources.git` knows replaced; else unchanged."""
    for prefix in sorted(sources.git, key=len, reverse=True):
        if url.startswith(prefix):
            return sources.git[prefix] + url[len(prefix) :]
    return url
