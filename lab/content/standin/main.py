"""The commands ``vllm`` and ``sglang`` of the images, and SGLang's older module."""

from __future__ import annotations

import sys
from importlib.metadata import version

from .engine import serve


def vllm() -> int:
    """``vllm serve …`` and ``vllm --version``."""
    return _command("vllm", sys.argv[1:])


def sglang() -> int:
    """``sglang serve …`` and ``sglang version``."""
    return _command("sglang", sys.argv[1:])


def sglang_module() -> int:
    """``python3 -m sglang.launch_server …``."""
    print("launch_server is deprecated, use `sglang serve`", file=sys.stderr)
    return serve("sglang", version("sglang"), sys.orig_argv, sys.argv[1:])


def _command(engine: str, words: list[str]) -> int:
    if words and words[0] in ("--version", "-v", "version"):
        print(version(engine))
        return 0
    if words and words[0] == "serve":
        return serve(engine, version(engine), [engine, *words], words[1:])
    print(f"{engine}: the stand-in knows `serve` and `--version`, found {words}", file=sys.stderr)
    return 2
