"""The place of flags in a command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines.command_line_flags import flag_span as flag_span
from lockstep.onhost.engines.command_line_flags import value_of as value_of

# Keys that steer a launcher, not the engine: never turned into a flag.
NOT_FLAGS = frozenset({"distributed_executor_backend_hint", "head_ip", "cluster_id", "base_url"})


def words(value: Any) -> tuple[str, ...] | None:
    """Return a recipe value as the words that follow its flag; None where the flag is left out.

    True gives no words (the flag alone), False and None leave the flag out, a list gives one word
    per item, a mapping becomes compact JSON.
    """
    if value is None or value is False:
        return None
    if value is True:
        return ()
    if isinstance(value, dict):
        return (json.dumps(value, separators=(",", ":"), default=str),)
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)
    return (str(value),)


def replace(argv: Sequence[str], names: Sequence[str], value: Any) -> tuple[str, ...]:
    """Return the command line with a flag set to a value: in its place, or else at the end."""
    new = words(value)
    flag = () if new is None else (names[0], *new)
    span = flag_span(argv, names)
    if span is None:
        return (*argv, *flag)
    head = argv[span[0]].split("=", 1)[0]
    new_words = () if new is None else (head, *new)
    return (*argv[: span[0]], *new_words, *argv[span[1] :])


def set_json(argv: Sequence[str], names: Sequence[str], **changes: str) -> tuple[str, ...]:
    """Return the command line with keys of a flag's JSON value set, if the flag is there."""
    text = value_of(argv, names)
    if text is None:
        return tuple(argv)
    return replace(argv, names, {**json_value(names[0], text), **changes})


def json_value(flag: str, text: str) -> dict[str, Any]:
    """Return a flag's JSON value as a mapping; RecipeError for another value."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise RecipeError(
            f"the value of {flag} is not JSON",
            found=text[:60],
            remedy="Put it into single quotes inside `command`, or write it as a YAML mapping.",
        ) from fault
    if not isinstance(value, dict):
        raise RecipeError(f"the value of {flag} must be a JSON mapping", found=text[:60])
    return value
