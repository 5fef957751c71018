"""Addresses on the server of the wheels that vLLM compiles of each commit of its branch `main`.

Layout as vLLM's `generate-nightly-index.py` makes it (read 2026-11): COMMIT/FILE is a wheel,
COMMIT/VARIANT/vllm/metadata.json lists those of one build, each with its path from that folder.
"""

from __future__ import annotations

import posixpath
from urllib.parse import quote, unquote

from lockstep.inventory.settings import Sources


def listing(commit: str, variant: str) -> str:
    """Path of the list of one build's wheels ("" is the usual build)."""
    return posixpath.join(commit, variant, "vllm", "metadata.json")


def wheel_path(listed: str, path: str) -> str:
    """Path of a wheel on the server, from the path that the list at ``listed`` gives.

    One that leaves the server begins with "..", and `lockstep.lock.pins` refuses it.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(listed), unquote(path)))


def wheel_url(sources: Sources, path: str) -> str:
    """Where a path of the server is; "+" in a file's name is quoted, as its store demands."""
    return f"{sources.vllm_wheels.rstrip('/')}/{quote(path)}"
