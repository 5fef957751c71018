"""Command templates: filled, then split as a shell would split them, never given to a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache

from lockstep.onhost.core.request_kinds_and_refused_shapes import Kind
from lockstep.onhost.engines import ENGINES, Engine
from lockstep.recipes import flags
from lockstep.recipes.recipe_file import Recipe

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Placeholders of sparkrun 0.4 (core/env_templates.py, read 2026-11-28). "{config.port:04}" is a
# fault there too, and "{{config.port}}" is the text "{config.port}".
_NAMED = re.compile(r"(?<![$\{])(\{+)(config|launch)\.([^{}]*)(\}*)")
# Values that only a start knows. sparkrun's `cluster_id` is missing: nothing here has such a
# number.
_LAUNCH = frozenset(
    {
        *("model_path", "model_revision", "num_nodes", "node_rank", "node_host"),
        "runtime_cache_dir",
    }
)
_CONTINUATION = re.compile(r"\\[ \t]+(?=\r?\n|$)")
# A value may hold placeholders of its own; deeper than this it is a circle.
_MOST_ROUNDS = 20
_SHELL_WORDS = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "2>"})


def engine_of(recipe: Recipe) -> Engine:
    """Return the recipe's engine; RecipeError for one that Lockstep does not run."""
    if recipe.engine is None:
        raise recipe.fault(
            "Lockstep does not run this engine",
            found=f"runtime {recipe.runtime}",
            allowed=", ".join(ENGINES),
            remedy="Choose a recipe of the same model for one of these engines.",
        )
    return recipe.engine


def kind_of(recipe: Recipe, argv: Sequence[str]) -> Kind:
    """Return the kind of a recipe's model: as the recipe says, else by its command line."""
    return recipe.lockstep.kind or engine_of(recipe).request_kind(argv) or "chat"


def served_name(recipe: Recipe, argv: Sequence[str]) -> str:
    """Return the model's name in the API of an engine with that command line."""
    names = flags.value_of(argv, engine_of(recipe).spellings("served_model_name"))
    return (names or recipe.model).split()[0]


def substitute(recipe: Recipe, template: str, overrides: Mapping[str, object]) -> str:
    """Replace {key} until nothing changes; JSON braces and unknown placeholders stay."""
    values: dict[str, object] = {**recipe.defaults, "model": recipe.model, **overrides}
    template = interpolate(recipe, "command", template, overrides, {})

    def value(match: re.Match[str]) -> str:
        replacement = values.get(match[1])
        return match[0] if replacement is None else _inline(replacement)

    text = _CONTINUATION.sub(r"\\", template.strip()).rstrip("\\").rstrip()
    for _ in range(_MOST_ROUNDS):
        earlier_text, text = text, _PLACEHOLDER.sub(value, text)
        if text == earlier_text:
            return text
        if len(text) > 100_000:
            break
    raise recipe.fault(
        "placeholders refer to each other in a circle",
        found=", ".join(sorted(set(_PLACEHOLDER.findall(text)))[:5]),
        remedy="Give one of these keys under `defaults` a plain value.",
    )


def interpolate(
    recipe: Recipe,
    where: str,
    text: str,
    overrides: Mapping[str, object],
    launch: Mapping[str, object] | None,
) -> str:
    """Replace {config.KEY} and {launch.KEY} once and no others, as sparkrun 0.4 does in `env`.

    Args:
        where: The key of the recipe that the text is of, for errors.
        launch: Values that the start knows; None: nothing is known yet, and {launch.KEY} stays.

    Raises:
        RecipeError: a key that has no value, or no single one.
    """
    config = {
        **{"model": recipe.model, "model_revision": recipe.model_revision},
        **recipe.defaults,
        **overrides,
    }

    def value(match: re.Match[str]) -> str:
        opening, space, key, closing = match.groups()
        if len(opening) > 1:
            return match[0][1:].replace("}", "", 1)
        field_value = (config if space == "config" else launch or {}).get(key)
        if space == "launch" and launch is None and key in _LAUNCH and closing:
            return match[0]
        if not closing or not isinstance(field_value, str | int | float):
            raise recipe.fault(
                f"{where} refers to {space}.{key}, which has no single value here",
                found=match[0],
                allowed="{config.KEY} of a key of `defaults`; in `env` also "
                + ", ".join(f"{{launch.{name}}}" for name in sorted(_LAUNCH)),
                remedy="Write the value itself, or give the key under `defaults`.",
            )
        return f"{field_value}{closing[1:]}"

    return _NAMED.sub(value, text)


def _inline(value: object) -> str:
    return str(value) if isinstance(value, bool) else " ".join(flags.words(value) or ())


@cache
def _words(text: str) -> tuple[str, ...]:
    # Each setting needs the command line again, and a shell's rules take time.
    return tuple(shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " ")))


def split(recipe: Recipe, text: str) -> tuple[str, ...]:
    """Return a filled template as an argument list that starts the recipe's engine.

    Raises:
        RecipeError: unbalanced quotes, shell constructs, or another program.
    """
    try:
        argv = _words(text)
    except ValueError as fault:
        raise recipe.fault(
            "the command's quotes do not balance",
            found=str(fault),
            remedy="Close every quote inside `command`.",
        ) from fault
    stray = next((word for word in argv if word[:1].isspace()), None)
    if stray is not None:
        raise recipe.fault(
            "a backslash before a blank glues the next word to it",
            found=repr(stray),
            remedy="End the line right after the backslash, or write `command: |`.",
        )
    shell = next((word for word in argv if _is_shell(word)), None)
    if shell is not None or "`" in text or "$(" in text:
        raise recipe.fault(
            "the command needs a shell; Lockstep starts the engine itself, without one",
            found=repr(shell or "a command substitution"),
            remedy="Leave only the engine and its flags under `command`; variables go under `env`.",
        )
    entries = engine_of(recipe).entries
    if not any(argv[: len(entry)] == entry for entry in entries):
        raise recipe.fault(
            "the command must start the engine",
            found=repr(" ".join(argv[:3])),
            allowed=" | ".join(" ".join(entry) for entry in entries),
        )
    return argv


def _is_shell(word: str) -> bool:
    return word in _SHELL_WORDS or word.endswith(";") or word.startswith(("$", "2>", "#"))


def refuse_leftovers(recipe: Recipe, argv: tuple[str, ...]) -> None:
    """Raise RecipeError if a placeholder got no value."""
    names_left = sorted({name for word in argv for name in _PLACEHOLDER.findall(word)})
    if names_left:
        raise recipe.fault(
            "the command holds placeholders that nothing fills",
            found=", ".join("{" + name + "}" for name in names_left),
            remedy="Add these keys under `defaults`.",
        )
