"""The command line and environment that a recipe yields: pure functions of recipe and overrides."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from lockstep import flags, guards
from lockstep.block import Engine
from lockstep.errors import RecipeError
from lockstep.recipes import Recipe

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CONTINUATION = re.compile(r"\\[ \t]+(?=\r?\n|$)")
# A value may hold placeholders of its own; deeper than this it is a circle.
_MOST_ROUNDS = 20
_SHELL_WORDS = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "2>"})
_ENTRY: dict[Engine, tuple[tuple[str, ...], ...]] = {
    "vllm": (("vllm", "serve"),),
    "sglang": (
        ("sglang", "serve"),
        ("python3", "-m", "sglang.launch_server"),
        ("python", "-m", "sglang.launch_server"),
    ),
}
_DRAFT_CONFIG = ("--speculative-config", "-sc")


def serve_command(
    recipe: Recipe,
    *,
    overrides: Mapping[str, object] | None = None,
    engine_version: str | None = None,
) -> tuple[str, ...]:
    """The engine's whole argument list: ``("vllm", "serve", MODEL, …)`` or ``("sglang", …)``.

    Args:
        recipe: What to serve.
        overrides: Recipe key → value; wins over `defaults` and over flags written out in the
            command. Besides every key of the flag table: ``model`` (id or path of a local
            snapshot), ``revision``, ``draft_model``, ``draft_revision``. None removes a flag.
        engine_version: Version of the engine that will run ("0.19.1", "0.32.0+cpu"), which decides
            how the freeze guard is given; None: unknown.

    Raises:
        RecipeError: an engine that Lockstep does not run, unbalanced quotes, shell constructs, a
            circle among placeholders, or a placeholder left over.
    """
    overrides = dict(overrides or {})
    engine = _engine(recipe)
    if recipe.command:
        argv = _split(recipe, _substitute(recipe, recipe.command, overrides))
        argv = _add_served_name(recipe, engine, argv, overrides)
    else:
        argv = _built(recipe, engine, overrides)
    argv = _with_overrides(recipe, engine, _model_first(recipe, engine, argv), overrides)
    argv = _with_revisions(recipe, engine, argv, overrides)
    _refuse_leftovers(recipe, argv)
    return (*argv, *guards.arguments(recipe, argv, engine_version))


def environment(
    recipe: Recipe,
    *,
    engine_version: str | None = None,
    control: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The engine's environment: the guard's variables, then the recipe's own, which win.

    Args:
        recipe: What to serve.
        engine_version: As for `serve_command`; a variable this engine ignores is left out.
        control: Values for ``$VAR`` and ``${VAR}`` inside the recipe's values.

    Raises:
        RecipeError: a value refers to a variable that ``control`` lacks.
    """
    obsolete = guards.obsolete_variables(engine_version)
    result = guards.environment(recipe, engine_version)
    for key, value in recipe.env.items():
        if key not in obsolete:
            result[key] = _expanded(recipe, key, value, control or {})
    return result


def _engine(recipe: Recipe) -> Engine:
    if recipe.engine is None:
        raise RecipeError(
            "Lockstep does not run this engine",
            where=str(recipe.path),
            found=f"runtime {recipe.runtime}",
            allowed="vllm, sglang",
            remedy="Choose a recipe of the same model for one of these engines.",
        )
    return recipe.engine


def _substitute(recipe: Recipe, template: str, overrides: Mapping[str, object]) -> str:
    """Replace {key} until nothing changes; JSON braces and unknown placeholders stay."""
    values: dict[str, object] = {**recipe.defaults, "model": recipe.model, **overrides}

    def value(match: re.Match[str]) -> str:
        replacement = values.get(match[1])
        return match[0] if replacement is None else _inline(replacement)

    text = _CONTINUATION.sub(r"\\", template.strip()).rstrip("\\").rstrip()
    for _ in range(_MOST_ROUNDS):
        before, text = text, _PLACEHOLDER.sub(value, text)
        if text == before:
            return text
        if len(text) > 100_000:
            break
    raise RecipeError(
        "placeholders refer to each other in a circle",
        where=str(recipe.path),
        found=", ".join(sorted(set(_PLACEHOLDER.findall(text)))[:5]),
        remedy="Give one of these keys under `defaults` a plain value.",
    )


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), default=str)
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return str(value)


def _split(recipe: Recipe, text: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " ")))
    except ValueError as fault:
        raise RecipeError(
            "the command's quotes do not balance",
            where=str(recipe.path),
            found=str(fault),
            remedy="Close every quote inside `command`.",
        ) from fault
    stray = next((word for word in argv if word[:1].isspace()), None)
    if stray is not None:
        raise RecipeError(
            "a backslash before a blank glues the next word to it",
            where=str(recipe.path),
            found=repr(stray),
            remedy="End the line right after the backslash, or write `command: |`.",
        )
    shell = next((word for word in argv if _is_shell(word)), None)
    if shell is not None or "`" in text or "$(" in text:
        raise RecipeError(
            "the command needs a shell; Lockstep starts the engine itself, without one",
            where=str(recipe.path),
            found=repr(shell or "a command substitution"),
            remedy="Leave only the engine and its flags under `command`; variables go under `env`.",
        )
    engine = _engine(recipe)
    if not any(argv[: len(entry)] == entry for entry in _ENTRY[engine]):
        raise RecipeError(
            "the command must start the engine",
            where=str(recipe.path),
            found=repr(" ".join(argv[:3])),
            allowed=" | ".join(" ".join(entry) for entry in _ENTRY[engine]),
        )
    return argv


def _is_shell(word: str) -> bool:
    return word in _SHELL_WORDS or word.endswith(";") or word.startswith(("$", "2>", "#"))


def _add_served_name(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """sparkrun appends --served-model-name where the template omits it; so do we."""
    names = flags.spellings(engine, "served_model_name")
    name = recipe.defaults.get("served_model_name")
    if name is None or "served_model_name" in overrides or flags.find(argv, names):
        return argv
    return flags.replaced(argv, names, name)


def _built(recipe: Recipe, engine: Engine, overrides: Mapping[str, object]) -> tuple[str, ...]:
    """The command line from `defaults` alone, in their order."""
    start = ("vllm", "serve", recipe.model)
    if engine == "sglang":
        start = ("sglang", "serve", "--model-path", recipe.model)  # type: ignore[assignment]
    argv: tuple[str, ...] = start
    for key, value in recipe.defaults.items():
        if key == "model" or key in overrides or key in flags.NOT_FLAGS:
            continue
        words = flags.words(_resolved(recipe, value, overrides))
        if words is not None:
            argv = (*argv, flags.spellings(engine, key)[0], *words)
    return argv


def _resolved(recipe: Recipe, value: Any, overrides: Mapping[str, object]) -> Any:
    return _substitute(recipe, value, overrides) if isinstance(value, str) else value


def _with_overrides(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    for key, value in overrides.items():
        if key in flags.NOT_FLAGS or key == "revision":
            continue
        if key == "model":
            argv = _with_model(engine, argv, str(value))
            argv = _keep_name(recipe, engine, argv, overrides)
        elif key in ("draft_model", "draft_revision"):
            argv = _with_draft(engine, argv, key, value)
        else:
            argv = flags.replaced(argv, flags.spellings(engine, key), value)
    return argv


def _model_first(recipe: Recipe, engine: Engine, argv: tuple[str, ...]) -> tuple[str, ...]:
    """vLLM's positional model stands right after `serve`, where no flag can swallow it."""
    if engine == "vllm" and recipe.model in argv[3:] and flags.is_flag(argv[2]):
        index = argv.index(recipe.model, 3)
        if argv[index - 1] != "--model":
            return (*argv[:2], recipe.model, *argv[2:index], *argv[index + 1 :])
    return argv


def _keep_name(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """A model served from a folder keeps its hub id as its name in the API."""
    names = flags.spellings(engine, "served_model_name")
    if overrides["model"] == recipe.model or "served_model_name" in overrides:
        return argv
    return argv if flags.find(argv, names) else flags.replaced(argv, names, recipe.model)


def _with_model(engine: Engine, argv: tuple[str, ...], model: str) -> tuple[str, ...]:
    names = ("--model",) if engine == "vllm" else flags.spellings("sglang", "model")
    if flags.find(argv, names) or engine == "sglang":
        return flags.replaced(argv, names, model)
    if len(argv) > 2 and not flags.is_flag(argv[2]):
        return (*argv[:2], model, *argv[3:])
    return (*argv[:2], model, *argv[2:])


def _with_draft(engine: Engine, argv: tuple[str, ...], key: str, value: Any) -> tuple[str, ...]:
    if engine == "vllm":
        field = "model" if key == "draft_model" else "revision"
        return flags.set_json(argv, _DRAFT_CONFIG, **{field: str(value)})
    if not flags.find(argv, flags.spellings(engine, "draft_model")):
        return argv
    return flags.replaced(argv, flags.spellings(engine, key), value)


def _with_revisions(
    recipe: Recipe, engine: Engine, argv: tuple[str, ...], overrides: Mapping[str, object]
) -> tuple[str, ...]:
    """Name the commit for model and draft, so that the engine opens what was fetched."""
    names = ("--revision",)
    revision = overrides.get("revision", None if "model" in overrides else recipe.revision)
    if revision:
        argv = flags.replaced(argv, names, revision)
    draft = recipe.lockstep.draft
    if draft and draft.revision and not {"draft_model", "draft_revision"} & set(overrides):
        argv = _with_draft(engine, argv, "draft_revision", draft.revision)
    return argv


def _refuse_leftovers(recipe: Recipe, argv: tuple[str, ...]) -> None:
    left = sorted({name for word in argv for name in _PLACEHOLDER.findall(word)})
    if left:
        raise RecipeError(
            "the command holds placeholders that nothing fills",
            where=str(recipe.path),
            found=", ".join("{" + name + "}" for name in left),
            remedy="Add these keys under `defaults`.",
        )


def _expanded(recipe: Recipe, key: str, value: str, control: Mapping[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in control:
            raise RecipeError(
                f"env.{key} refers to ${name}, which is not set",
                where=str(recipe.path),
                remedy="Give the value itself, or set the variable in the inventory.",
            )
        return control[name]

    return re.sub(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", known, value)
