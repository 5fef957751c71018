"""A recipe and a model to start from, made from a foreign engine on a host."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.engines.command_line_flags import is_flag
from lockstep.recipes.recipe_file import parse

# Lockstep decides where weights lie, and a recipe's own variable would win.
_WEIGHTS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")


def ways() -> dict[str, list[tuple[str, ...]]]:
    """Return engine → the words that start it, each way; the way of a recipe comes first."""
    return {name: [*engine.entries, *engine.older_entries] for name, engine in ENGINES.items()}


def recipe_name(engine_found: dict[str, Any]) -> str:
    """Return the recipe's name: the unit's or container's, in letters that a name may have."""
    plain = str(engine_found["name"]).removesuffix(".service").lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.") or "adopted"


def recipe(engine_found: dict[str, Any], host: str) -> str:
    """Return the text of a recipe file for a find of `lockstep.onhost.engine.foreign_engines`.

    The recipe need not be valid: `lockstep recipe check` judges that.

    Raises:
        RecipeError: no recipe can be read from it, such as one without a model.
    """
    mounts = engine_found["mounts"]
    argv = [_of_host(word, mounts) for word in engine_found["argv"]]
    runs = "running" if engine_found["running"] else "not running"
    lines = [f"# Of the {engine_found['kind']} {engine_found['name']} on {host}, {runs}."]
    if engine_found["withheld"]:
        lines.append(f"# May be secret and was not read: {', '.join(engine_found['withheld'])}.")
    if mounts:
        folders = ", ".join(f"{source} at {at}" for at, source in sorted(mounts.items()))
        lines.append(f"# It sees {folders}. Paths below are the host's.")
        lines.append("# A container of Lockstep's sees models that a deploy fetches, and no more.")
    lines += ['recipe_version: "2"', f"model: {json.dumps(_model(engine_found['engine'], argv))}"]
    lines.append(f"runtime: {ENGINES[engine_found['engine']].runtimes[0]}")
    if engine_found["image"]:
        lines += [f"container: {json.dumps(engine_found['image'])}", "executor_config:"]
        lines.append('  entrypoint: ""  # the command below is whole')
    variables = engine_found["environment"].items()
    variables_of_recipe = {
        key: _of_host(value, mounts) for key, value in variables if key not in _WEIGHTS
    }
    if variables_of_recipe:
        lines += [
            "env:",
            *(
                f"  {key}: {json.dumps(variables_of_recipe[key])}"
                for key in sorted(variables_of_recipe)
            ),
        ]
    text = "\n".join([*lines, "command: |", *_command(argv)]) + "\n"
    parse(text, Path(f"{recipe_name(engine_found)}.yaml"))
    return text


def model(engine_found: dict[str, Any]) -> str:
    """Return the engine's line of `models` for the inventory."""
    name = recipe_name(engine_found)
    unit = re.sub(r"[^a-z0-9-]", "-", f"{name}-lockstep")
    return f'"{name}": {{"recipe": "{name}", "unit": "{unit}"}},'


def _of_host(word: str, mounts: Mapping[str, str]) -> str:
    """Return the host's path for a path in a container, also after a flag's "="."""
    flag, mark, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for at in sorted(mounts, key=len, reverse=True):
        if value == at or value.startswith(f"{at}/"):
            return f"{flag}{mark}{mounts[at]}{value.removeprefix(at)}"
    return word


def _model(engine: str, argv: Sequence[str]) -> str:
    adopted_engine = ENGINES[engine]
    words_to_skip = len(adopted_engine.entries[0])
    if (
        adopted_engine.positional_model
        and len(argv) > words_to_skip
        and not is_flag(argv[words_to_skip])
    ):
        return argv[words_to_skip]
    model = adopted_engine.value(argv, "model")
    if not model and adopted_engine.hub_model:
        places = [at for at, word in enumerate(argv[:-1]) if word in adopted_engine.hub_model[:1]]
        model = argv[places[-1] + 1] if places else None
    if not model:
        raise RecipeError(
            "its command line names no model",
            remedy="Write the recipe by hand (`lockstep help recipes`).",
        )
    return model


def _command(argv: Sequence[str]) -> list[str]:
    """Return lines with a flag and its values in each, as people write them."""
    rows: list[list[str]] = [[]]
    for word in argv:
        if is_flag(word) and rows[-1]:
            rows.append([])
        rows[-1].append(shlex.quote(word))
    return [f"  {' '.join(row)}" + (" \\" if row is not rows[-1] else "") for row in rows]
