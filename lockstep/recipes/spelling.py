"""Flags as an engine's own parser reads them, written in one way.

A person writes `--max_model_len`, `--gpu-memory` or `--speculative-config.model X`, and the engine
takes them all. What is judged, overridden and written into a unit is the same command
with each flag in full and each JSON value in one piece, so nothing else has to know these ways.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lockstep.core import product
from lockstep.core.argv import is_flag
from lockstep.onhost.engines import Engine

# vLLM's own reader of sizes (utils/argparse_utils.py, 0.32.0): small letters count in thousands.
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWER = "kmgt"


def size(text: str) -> float:
    """A number with a unit as vLLM reads it: 256k is 256,000, 256K is 262,144. ValueError else."""
    if found := _SIZE.fullmatch(text):
        base = 1000.0 if found[2].islower() else 1024.0
        power = _POWER.index(found[2].lower()) + 1
        return float(found[1]) * float(base**power)
    return float(text)


def spelled(engine: Engine, argv: Sequence[str]) -> tuple[str, ...]:
    """A command line with flags in full, and dotted ones put together at its end as JSON."""
    words: list[str] = []
    dotted: dict[str, dict[str, Any]] = {}
    left = list(argv)
    while left:
        word = left.pop(0)
        if not is_flag(word):
            words.append(word)
            continue
        flag, given, value = word.partition("=")
        flag, dot, path = flag.partition(".")
        if flag.startswith("--"):
            flag = flag.replace("_", "-")
            flag = flag if dot and not engine.dotted_flags else in_full(engine, flag)
        if not dot or not engine.dotted_flags:
            words.append(f"{flag}{dot}{path}{given}{value}")
            continue
        if not given:
            value = left.pop(0) if left else ""
        _put(dotted.setdefault(flag, {}), path.removesuffix("+").split("."), _read(path, value))
    for flag, merged in dotted.items():
        words += [flag, json.dumps(merged, separators=(",", ":"))]
    return tuple(words)


def in_full(engine: Engine, flag: str) -> str:
    """The one option that a flag is the beginning of; the flag itself where it is none's."""
    known = _options(engine.name)
    ours = (spelling for names in engine.flags.values() for spelling in names)
    if flag in known or flag in ours:
        return flag
    found = [option for option in known if option.startswith(flag)]
    return found[0] if len(found) == 1 else flag


@cache
def _options(engine: str) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):
        text = (product.CATALOGUE / "options" / f"{engine}.txt").read_text(encoding="utf-8")
        return tuple(line for line in text.splitlines() if line.startswith("--"))
    return ()


def _read(path: str, text: str) -> Any:
    if path.endswith("+"):
        return text.split(",")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return int(size(text))
    except (ValueError, OverflowError):
        return text


def _put(into: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set a value under nested keys, as the engine does: mappings merge, lists grow."""
    *outer, last = keys
    for key in outer:
        inner = into.get(key)
        if not isinstance(inner, dict):
            inner = into[key] = {}
        into = inner
    before = into.get(last)
    if isinstance(before, list) and isinstance(value, list):
        into[last] = before + value
    elif isinstance(before, dict) and isinstance(value, dict):
        for key, each in value.items():
            _put(before, [key], each)
    else:
        into[last] = value
