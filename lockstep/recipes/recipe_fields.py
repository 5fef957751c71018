"""Fields of a recipe file, with the surprises of the format; `recipes` puts them together."""

from __future__ import annotations

import re
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.yamlfile import place
from lockstep.onhost.engines import ENGINES

# Nobody was seen to run more than eight Sparks together (2026-11); this only stops typing errors.
MOST_NODES = 64

_HINTS = (
    *(hint for engine in ENGINES.values() for hint in engine.hints),
    (re.compile(r"llama-server\b"), "llama-cpp"),
    (re.compile(r"(?:trtllm-serve\b|mpirun\b.*trtllm)"), "trtllm"),
)
# The runtimes of sparkrun that drive an engine of ours.
ENGINE_OF_RUNTIME = {name: engine for engine in ENGINES.values() for name in engine.runtimes}
# What a recipe without a runtime stands for.
_USUAL = next(engine.runtimes[0] for engine in ENGINES.values() if engine.usual)
RUNTIMES = (*ENGINE_OF_RUNTIME, "llama-cpp", "trtllm", "atlas")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


def refuse_v1(data: dict[str, Any], where: str) -> None:
    """Refuse every version but 2, and say what version 1 would need."""
    version = str(data.get("recipe_version", data.get("sparkrun_version", "2")))
    if version == "2":
        return
    key = "recipe_version" if "recipe_version" in data else "sparkrun_version"
    remedy = 'Set `recipe_version: "2"` once the recipe follows that format.'
    if version == "1":
        remedy = (
            "Version 1 builds an image (`build_args`) and patches it (`mods`). Name a ready image "
            'under `container`, remove both keys, and set `recipe_version: "2"`.'
        )
    raise RecipeError(
        "this version of the recipe format is not supported",
        where=place(where, data, key),
        found=f"{key} {version!r}",
        allowed='"2"',
        remedy=remedy,
    )


def wrong(data: dict[str, Any], key: str, where: str, expected: str) -> RecipeError:
    """The error for a value of the wrong kind: line, what was expected, what was found."""
    shown = repr(data.get(key))
    return RecipeError(
        f"{key} must be {expected}",
        where=place(where, data, key),
        found=shown if len(shown) <= 60 else f"{shown[:57]}...",
    )


def read_text(data: dict[str, Any], key: str, where: str) -> str | None:
    """A text without blanks around it; None where it is absent or empty."""
    value = data.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise wrong(data, key, where, "text")
    if "\0" in value:
        raise wrong(data, key, where, "text without a NUL character")
    return value.strip() or None


def read_section(data: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """A mapping; {} where it is absent."""
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(data, key, where, "a mapping")
    return value


def read_environment(data: dict[str, Any], where: str) -> dict[str, Any]:
    """`env`: names that a shell would take, one line of text or a number each."""
    environment = read_section(data, "env", where)
    for key, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
            raise RecipeError(
                f"env key {key!r} is not a variable name", where=place(where, environment, key)
            )
        if isinstance(value, dict | list) or value is None or "\0" in str(value):
            raise RecipeError(
                f"env.{key} must be one text or number",
                where=place(where, environment, key),
                found=repr(value)[:60],
                remedy="Quote the value.",
            )
        if "\n" in str(value):
            raise RecipeError(f"env.{key} spans lines", where=place(where, environment, key))
    return environment


def check_words(key: str, value: str, data: dict[str, Any], where: str) -> None:
    """Refuse a value that would be taken for an option, or for several words."""
    if value and (value.startswith("-") or any(character.isspace() for character in value)):
        raise wrong(data, key, where, "one word that does not start with '-'")


def check_model(model: str, data: dict[str, Any], where: str) -> None:
    """Refuse what is neither a hub id (GGUF: with ":quant") nor a full path."""
    known = _HUB_ID.fullmatch(model) or model.startswith("/")
    if not known or ".." in model.split("/"):
        raise wrong(data, "model", where, "a Hugging Face id (ORGANISATION/NAME) or a full path")
    check_words("model", model, data, where)


def _whole(data: dict[str, Any], key: str, where: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise wrong(data, key, where, f"a whole number of Sparks from 1 to {MOST_NODES}")
    return value


def read_nodes(data: dict[str, Any], where: str) -> tuple[int, int | None]:
    """min_nodes and max_nodes, after the deprecated spellings mode, solo_only, cluster_only."""
    least, most = _whole(data, "min_nodes", where) or 1, _whole(data, "max_nodes", where)
    mode = data.get("mode", "auto")
    if mode not in ("auto", "solo", "cluster"):
        raise wrong(data, "mode", where, "auto, solo or cluster")
    if mode == "solo" or data.get("solo_only"):
        most = 1
        least = 1 if mode == "solo" else least
    if mode == "cluster" or data.get("cluster_only"):
        least = max(least, 2)
    if most is not None and most < least:
        raise RecipeError(
            "min_nodes is larger than max_nodes",
            where=place(where, data, "max_nodes" if "max_nodes" in data else "min_nodes"),
            found=f"{least} and {most} Sparks",
        )
    return least, most


def read_runtime(
    data: dict[str, Any], command: str | None, defaults: dict[str, Any], where: str
) -> str:
    """The runtime as sparkrun resolves it: named, guessed from the command, or the usual one."""
    named = read_text(data, "runtime", where)
    if named is None and command:
        named = next((runtime for hint, runtime in _HINTS if hint.match(command)), None)
    if named is not None and named not in RUNTIMES:
        raise RecipeError(
            "unknown runtime",
            where=place(where, data, "runtime"),
            found=repr(named),
            allowed=", ".join(RUNTIMES),
        )
    named = named or _USUAL
    engine = ENGINE_OF_RUNTIME.get(named)
    return engine.runtime(named, command or "", defaults) if engine else named


def read_revision(data: dict[str, Any], where: str) -> str | None:
    """`model_revision`: a commit, tag or branch, or None where it is not pinned."""
    revision = read_text(data, "model_revision", where)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise wrong(data, "model_revision", where, "a branch, tag or commit")
    return revision
