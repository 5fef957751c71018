"""Flags as an engine's own parser reads them, written in one way.

A person writes `--max_model_len`, `--gpu-memory` or `--speculative-config.model X`, and the engine
takes them all. What is judged, overridden and written into a unit is the same command
with each flag in full and each JSON value in one piece, so nothing else has to know these ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lockstep.core import product
from lockstep.onhost.engines import Engine

# vLLM's own reader of sizes (utils/argparse_utils.py, 0.32.0): small letters count in thousands.
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWER = "kmgt"


def size(text: str) -> float:
    """A number with a unit as vLLM reads it: 256k is 256,000, 256K is 262,144. ValueError else."""
    if found := _SIZE.fullmatch(text.strip()):
        power = _POWER.index(found[2].lower()) + 1
        if found[2].islower():
            return float(int(float(found[1]) * 1000**power))
        # It takes no decimals there.
        return float(int(found[1]) * 1024**power)
    return float(text)


def spelled(engine: Engine, argv: Sequence[str]) -> tuple[str, ...]:
    """A command line with flags in full, and dotted ones put together at its end as JSON."""
    words: list[str] = []
    # By the flag as it is written: of two ways to write one, vLLM takes the last.
    dotted: dict[str, dict[str, Any]] = {}
    left = list(argv)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word[1:2].isdigit() or word[1:2] in ("", "."):
            words.append(word)
            continue
        flag, given, value = word.partition("=")
        flag, dot, path = flag.partition(".")
        if flag.startswith("--"):
            flag = flag.replace("_", "-")
        if not dot or not engine.dotted_flags:
            *first, last = [flag] if dot else _separate(engine, flag)
            words += [*first, f"{last}{dot}{path}{given}{value}"]
            continue
        if not given:
            value = left.pop(0) if left else ""
        _put(dotted.setdefault(flag, {}), path.removesuffix("+").split("."), _read(path, value))
    for flag, merged in dotted.items():
        words += [in_full(engine, flag), json.dumps(merged, separators=(",", ":"))]
    return tuple(words)


def in_full(engine: Engine, flag: str) -> str:
    """The one option that a flag is the beginning of, or that has this short name; the flag itself
    where it is no option's."""
    known = _options(engine)
    if flag in known or any(flag in names for names in engine.flags.values()):
        return known.get(flag, flag)
    found = [option for option in known if option.startswith(flag)]
    return known[found[0]] if len(found) == 1 else flag


def _separate(engine: Engine, flag: str) -> list[str]:
    """A flag of one letter and the value that sticks to it ("-O3"), or any other flag alone."""
    known = _options(engine)
    stuck = flag not in known and flag[:2] in known
    return [known[flag[:2]], flag[2:]] if stuck else [in_full(engine, flag)]


@cache
def _options(engine: Engine) -> dict[str, str]:
    """Option → its long name, by the list of the engine's own parser; {}: it has no list."""
    file = product.CATALOGUE / "options" / f"{engine.name}.txt"
    if not file.is_file():
        return {}
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    known = {spelling: line[0] for line in lines if line[0] != "#" for spelling in line}
    # vLLM's parser knows -O before it looks at its options.
    short = {name: names[0] for names in engine.flags.values() for name in names[1:]}
    return {**{name: long for name, long in short.items() if name[1] != "-"}, **known}


def _read(path: str, text: str) -> Any:
    if path.endswith("+"):
        return text.split(",")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return int(size(text)) if _SIZE.fullmatch(text) else int(text)
    except ValueError:
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
