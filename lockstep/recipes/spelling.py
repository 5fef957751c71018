"""Flags as an engine's own parser reads them, written in one way.

A person writes `--max_model_len`, `--gpu-memory` or `--speculative-config.model X`, and the engine
takes them all. Here each flag is written in full and each JSON value in one piece. The same command
is judged, overridden and written into a unit, so no other code has to know these ways.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from lockstep.core import product
from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import Engine
from lockstep.recipes.recipe_file import Recipe

# The sizes of vLLM's own parser (utils/argparse_utils.py, 0.32.0): small letters count in
# thousands.
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWER = "kmgt"
# A word in braces, of a command's template.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)")
# Two flags of one engine differ by a whole word, a slip in letters of words: with this no flag of
# vLLM 0.32 or SGLang 0.5.9 passes for a slip of one that is known here (2026-11-27).
_ALIKE = 0.7


def size(text: str) -> float:
    """Return a number with a unit as vLLM reads it: 256k is 256,000, 256K is 262,144.

    Raises:
        ValueError: it is no such number.
    """
    if match := _SIZE.fullmatch(text.strip()):
        power = _POWER.index(match[2].lower()) + 1
        if match[2].islower():
            return float(int(float(match[1]) * 1000**power))
        # vLLM takes no decimals there.
        return float(int(match[1]) * 1024**power)
    return float(text)


def nearest_key(name: str, engine: Engine, recipes: Iterable[Recipe]) -> str:
    """Return the known key that an unknown one is a slip of; "" for a known one, or one of its own.

    No list has every flag of every release. A key that is like no other is left to the engine's own
    parser, which the deploy asks before it changes a unit.

    Args:
        name: The key, with dashes or underscores.
        recipes: Recipes whose keys and flags are known, the key's own recipe first.
    """
    own_recipe, *more = recipes
    flags = {
        *engine.flags,
        *(spelling for spellings in engine.flags.values() for spelling in spellings),
        *_PLACEHOLDER.findall(own_recipe.command),
    }
    for recipe in (own_recipe, *more):
        if recipe.engine == engine:
            flags |= {*recipe.defaults, *_FLAG.findall(recipe.command)}
    known_keys = {flag.lstrip("-").replace("-", "_") for flag in flags}
    key = name.replace("-", "_")
    is_option = "--" + key.replace("_", "-") in _options(engine)
    if is_option or {key, key.removeprefix("no_")} & known_keys:
        return ""
    return next(
        (known_key for known_key in sorted(known_keys) if _is_slip(key.lower(), known_key)), ""
    )


def _is_slip(key: str, of: str) -> bool:
    words, other_words = key.split("_"), of.split("_")
    return "".join(words) == "".join(other_words) or (
        len(words) == len(other_words)
        and all(
            first_word == second_word
            or difflib.SequenceMatcher(None, first_word, second_word).ratio() > _ALIKE
            for first_word, second_word in zip(words, other_words, strict=True)
        )
    )


def in_full_spelling(engine: Engine, argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with flags in full, and dotted ones put together at its end as JSON.

    Raises:
        RecipeError: a key of a flag of one letter.
    """
    words: list[str] = []
    # The key is the flag as it is written: of two ways to write one flag, vLLM takes the last.
    values_by_flag: dict[str, dict[str, Any]] = {}
    words_left = list(argv)
    while words_left:
        word = words_left.pop(0)
        if not word.startswith("-") or word[1:2].isdigit() or word[1:2] in ("", "."):
            words.append(word)
            continue
        flag, has_value, value = word.partition("=")
        flag, dot, path = flag.partition(".")
        if flag.startswith("--"):
            flag = flag.replace("_", "-")
        if not dot or not engine.dotted_flags:
            *first, last = [flag] if dot else _separate(engine, flag)
            words += [*first, f"{last}{dot}{path}{has_value}{value}"]
            continue
        if len(flag) == 2:
            # vLLM 0.26 reads "-O.level=3" as a level ".level=3", and older ones as a key.
            raise RecipeError(
                "a flag of one letter has no keys that every release reads alike",
                found=word,
                remedy="Write the flag in full, such as --compilation-config.mode 3, or -O 3.",
            )
        if not has_value:
            value = words_left.pop(0) if words_left else ""
        _put(
            values_by_flag.setdefault(flag, {}),
            path.removesuffix("+").split("."),
            _read(path, value),
        )
    for flag, values in values_by_flag.items():
        words += [in_full(engine, flag), json.dumps(values, separators=(",", ":"))]
    return tuple(words)


def in_full(engine: Engine, flag: str) -> str:
    """Return the option that a flag abbreviates or has as short name; else the flag itself."""
    options = _options(engine)
    if flag in options or any(flag in names for names in engine.flags.values()):
        return options.get(flag, flag)
    matches = [option for option in options if option.startswith(flag)]
    return options[matches[0]] if len(matches) == 1 else flag


def _separate(engine: Engine, flag: str) -> list[str]:
    """Return a flag of one letter and the value that sticks to it ("-O3"), or the flag alone."""
    long_names = _options(engine)
    has_value = flag not in long_names and flag[:2] in long_names
    return [long_names[flag[:2]], flag[2:]] if has_value else [in_full(engine, flag)]


@cache
def _options(engine: Engine) -> dict[str, str]:
    """Return option → its long name, from the engine's own parser; {} where it has no list."""
    file = product.CATALOGUE / "options" / f"{engine.name}.txt"
    if not file.is_file():
        return {}
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    long_names = {spelling: line[0] for line in lines if line[0] != "#" for spelling in line}
    # vLLM's parser knows -O before it looks at its options.
    short = {name: names[0] for names in engine.flags.values() for name in names[1:]}
    return {**{name: long for name, long in short.items() if name[1] != "-"}, **long_names}


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
    earlier_value = into.get(last)
    if isinstance(earlier_value, list) and isinstance(value, list):
        into[last] = earlier_value + value
    elif isinstance(earlier_value, dict) and isinstance(value, dict):
        for key, item in value.items():
            _put(earlier_value, [key], item)
    else:
        into[last] = value
