"""A recipe and a target to start from, of an engine that somebody else starts on a host."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.engines.argv import is_flag
from lockstep.recipes.recipe_file import parse

# Where weights lie is Lockstep's to say, and a recipe's own word would win.
_WEIGHTS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")


def ways() -> dict[str, list[tuple[str, ...]]]:
    """Engine → the words that start it, each way; how a recipe writes it first."""
    return {name: [*each.entries, *each.older_entries] for name, each in ENGINES.items()}


def named(theirs: dict[str, Any]) -> str:
    """The recipe's name: the unit's or container's, in letters that a name may have."""
    plain = str(theirs["name"]).removesuffix(".service").lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.") or "adopted"


def recipe(theirs: dict[str, Any], host: str) -> str:
    """The text of a recipe file, of what `lockstep.onhost.engine.theirs` found on a host.

    It need not be a valid one: `lockstep recipe check` says that.

    Raises:
        RecipeError: no recipe can be read from it, such as one without a model.
    """
    mounts = theirs["mounts"]
    argv = [_of_host(word, mounts) for word in theirs["argv"]]
    runs = "running" if theirs["running"] else "not running"
    lines = [f"# Of the {theirs['kind']} {theirs['name']} on {host}, {runs}."]
    if theirs["withheld"]:
        lines.append(f"# May be secret and was not read: {', '.join(theirs['withheld'])}.")
    if mounts:
        folders = ", ".join(f"{source} at {at}" for at, source in sorted(mounts.items()))
        lines.append(f"# It sees {folders}. Paths below are the host's.")
        lines.append("# A container of Lockstep's sees models that a deploy fetches, and no more.")
    lines += ['recipe_version: "2"', f"model: {json.dumps(_model(theirs['engine'], argv))}"]
    lines.append(f"runtime: {ENGINES[theirs['engine']].runtimes[0]}")
    if theirs["image"]:
        lines += [f"container: {json.dumps(theirs['image'])}", "executor_config:"]
        lines.append('  entrypoint: ""  # the command below is whole')
    said = theirs["environment"].items()
    given = {key: _of_host(value, mounts) for key, value in said if key not in _WEIGHTS}
    if given:
        lines += ["env:", *(f"  {key}: {json.dumps(given[key])}" for key in sorted(given))]
    text = "\n".join([*lines, "command: |", *_command(argv)]) + "\n"
    parse(text, Path(f"{named(theirs)}.yaml"))
    return text


def target(theirs: dict[str, Any]) -> str:
    """A line of `targets` in the inventory."""
    name = named(theirs)
    unit = re.sub(r"[^a-z0-9-]", "-", f"{name}-lockstep")
    return f'"{name}": {{"recipe": "{name}", "unit": "{unit}"}},'


def _of_host(word: str, mounts: Mapping[str, str]) -> str:
    """A path in a container, also after a flag's "=", as the host has it."""
    flag, mark, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for at in sorted(mounts, key=len, reverse=True):
        if value == at or value.startswith(f"{at}/"):
            return f"{flag}{mark}{mounts[at]}{value.removeprefix(at)}"
    return word


def _model(engine: str, argv: Sequence[str]) -> str:
    known = ENGINES[engine]
    after = len(known.entries[0])
    if known.positional_model and len(argv) > after and not is_flag(argv[after]):
        return argv[after]
    found = known.value(argv, "model")
    if not found and known.hub_model:
        places = [at for at, word in enumerate(argv[:-1]) if word in known.hub_model[:1]]
        found = argv[places[-1] + 1] if places else None
    if not found:
        raise RecipeError(
            "its command line names no model",
            remedy="Write the recipe by hand (`lockstep help recipes`).",
        )
    return found


def _command(argv: Sequence[str]) -> list[str]:
    """A flag and its values in each line, as people write it."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if is_flag(word) and rows[-1]:
            rows.append([])
        rows[-1].append(shlex.quote(word))
    return [f"  {' '.join(row)}" + (" \\" if row is not rows[-1] else "") for row in rows]
