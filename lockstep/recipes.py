"""Recipes: the community's sparkrun recipe v2, with its surprises, plus our `lockstep:` block.

Unknown top-level keys are kept (`Recipe.extra`), as that format wants. The older v1 format of
eugr's scripts is refused, because it builds an image and patches it instead of naming one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.block import ENGINES, Engine, LockstepBlock, parse_block
from lockstep.errors import RecipeError
from lockstep.yamlfile import parse_mapping, place, read_mapping

# Keys that the format defines; anything else at the top level goes to `extra`.
KNOWN_KEYS = frozenset(
    (
        *("recipe_version", "sparkrun_version", "name", "description", "model", "model_revision"),
        *("runtime", "runtime_version", "runtime_config", "container", "min_nodes", "max_nodes"),
        *("mode", "solo_only", "cluster_only", "defaults", "env", "command", "metadata"),
        *("executor_config", "distribution_config", "builder", "builder_config", "mods"),
        *("pre_exec", "post_exec", "post_commands", "stop_after_post", "benchmark", "lockstep"),
    )
)

# Nobody was seen to run more than eight Sparks together (2026-11); this only stops typing errors.
MOST_NODES = 64

_HINTS = (
    (re.compile(r"vllm\s+serve\b"), "vllm"),
    (re.compile(r"python3?\s+-m\s+vllm\.entrypoints\."), "vllm"),
    (re.compile(r"(?:sglang\s+serve|python3?\s+-m\s+sglang\.launch_server)\b"), "sglang"),
    (re.compile(r"llama-server\b"), "llama-cpp"),
    (re.compile(r"(?:trtllm-serve\b|mpirun\b.*trtllm)"), "trtllm"),
)
_RAY_FLAG = re.compile(r"--distributed-executor-backend[\s=]+ray\b")
# The runtimes of sparkrun that drive one of our two engines.
_ENGINE_OF_RUNTIME: dict[str, Engine] = {
    "vllm": "vllm",
    "vllm-distributed": "vllm",
    "vllm-ray": "vllm",
    "eugr-vllm": "vllm",
    "sglang": "sglang",
}
RUNTIMES = (*_ENGINE_OF_RUNTIME, "llama-cpp", "trtllm", "atlas")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*")


@dataclass(frozen=True)
class Recipe:
    """One setup of one model: what is served, by which engine, with which flags.

    Attributes:
        name: The file's stem; how targets in the inventory refer to it.
        path: The file it was read from.
        model: Hugging Face id, or a path; a GGUF file set is "repository:quant".
        revision: Commit, tag or branch of the model, or None where it is not pinned.
        runtime: sparkrun's runtime after resolution ("vllm-distributed", "sglang", …).
        container: Image reference; "" means that the engine lives in a venv.
        min_nodes: Least number of Sparks.
        max_nodes: Most Sparks, or None for no limit.
        defaults: Values for placeholders and flags.
        env: Environment of the engine, values as text; "$VAR" is not yet expanded.
        command: The command template, or None: built from `defaults`.
        metadata: What the format says about the model, unchecked.
        executor_config: Container settings of that format.
        lockstep: Our own block.
        extra: Top-level keys that the format does not define.
        hooks: pre_exec, post_exec, post_commands and mods, kept unread: Lockstep runs none of them.
    """

    name: str
    path: Path
    model: str
    revision: str | None
    runtime: str
    container: str
    min_nodes: int
    max_nodes: int | None
    defaults: Mapping[str, Any]
    env: Mapping[str, str]
    command: str | None
    metadata: Mapping[str, Any]
    executor_config: Mapping[str, Any]
    lockstep: LockstepBlock
    extra: Mapping[str, Any]
    hooks: Mapping[str, Any]

    @property
    def engine(self) -> Engine | None:
        """The engine whose flags the command holds, or None: one that Lockstep does not run."""
        return self.lockstep.engine or _ENGINE_OF_RUNTIME.get(self.runtime)

    @property
    def in_container(self) -> bool:
        """True: runs from an image. False: runs in a venv of the host."""
        return bool(self.container)

    @property
    def description(self) -> str:
        """One line for lists, or ""."""
        return str(self.metadata.get("description") or "").strip()


def load(path: Path) -> Recipe:
    """Read one recipe file.

    Raises:
        RecipeError: every fault of the file, with file, line, key and remedy.
    """
    path = Path(path)
    return _recipe(read_mapping(path, RecipeError), path)


def parse(text: str, path: Path) -> Recipe:
    """Like `load`, for text that is already in memory; ``path`` gives name and error place."""
    return _recipe(parse_mapping(text, str(path), RecipeError), Path(path))


def load_catalogue(*directories: Path) -> dict[str, Recipe]:
    """Every ``*.yaml`` of the folders by name; a later folder may not repeat a name.

    Raises:
        RecipeError: a folder is missing, a recipe is wrong, or two files share a name.
    """
    recipes: dict[str, Recipe] = {}
    for directory in directories:
        if not Path(directory).is_dir():
            raise RecipeError("the recipe folder does not exist", where=str(directory))
        for path in sorted(Path(directory).glob("*.yaml")):
            recipe = load(path)
            if recipe.name in recipes:
                raise RecipeError(
                    f"recipe {recipe.name!r} exists twice",
                    where=str(path),
                    found=f"also in {recipes[recipe.name].path}",
                    remedy="Rename one of the files.",
                )
            recipes[recipe.name] = recipe
    return recipes


def _recipe(data: dict[str, Any], path: Path) -> Recipe:
    where = str(path)
    _refuse_v1(data, where)
    command = _text(data, "command", where)
    defaults = _section(data, "defaults", where)
    if "model" in defaults and defaults["model"] != data.get("model"):
        raise RecipeError(
            "defaults.model differs from model, so what is fetched would not be what is served",
            where=place(where, defaults, "model"),
            found=repr(defaults["model"])[:60],
            remedy="Remove defaults.model.",
        )
    container = _text(data, "container", where) or ""
    _check_words("container", container, data, where)
    least, most = _nodes(data, where)
    model = _text(data, "model", where)
    if not model:
        raise RecipeError(
            "the recipe names no model",
            where=where,
            remedy="Add `model: ORGANISATION/NAME`, the id on the Hugging Face hub.",
        )
    _check_model(model, data, where)
    revision = _text(data, "model_revision", where)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise _wrong(data, "model_revision", where, "a branch, tag or commit")
    block = parse_block(data.get("lockstep"), where)
    return Recipe(
        name=path.stem,
        path=path,
        model=model,
        revision=revision,
        runtime=_runtime(data, command, defaults, where),
        container=container,
        min_nodes=least,
        max_nodes=most,
        defaults=defaults,
        env={key: str(value) for key, value in _environment(data, where).items()},
        command=command,
        metadata=_section(data, "metadata", where),
        executor_config=_section(data, "executor_config", where),
        lockstep=block,
        extra={key: value for key, value in data.items() if key not in KNOWN_KEYS},
        hooks={
            key: data[key]
            for key in ("pre_exec", "post_exec", "post_commands", "mods")
            if data.get(key)
        },
    )


def _refuse_v1(data: dict[str, Any], where: str) -> None:
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


def _wrong(data: dict[str, Any], key: str, where: str, expected: str) -> RecipeError:
    shown = repr(data.get(key))
    return RecipeError(
        f"{key} must be {expected}",
        where=place(where, data, key),
        found=shown if len(shown) <= 60 else f"{shown[:57]}...",
    )


def _text(data: dict[str, Any], key: str, where: str) -> str | None:
    value = data.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _wrong(data, key, where, "text")
    if "\0" in value:
        raise _wrong(data, key, where, "text without a NUL character")
    return value.strip() or None


def _section(data: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(data, key, where, "a mapping")
    return value


def _environment(data: dict[str, Any], where: str) -> dict[str, Any]:
    environment = _section(data, "env", where)
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


def _check_words(key: str, value: str, data: dict[str, Any], where: str) -> None:
    if value and (value.startswith("-") or any(character.isspace() for character in value)):
        raise _wrong(data, key, where, "one word that does not start with '-'")


def _check_model(model: str, data: dict[str, Any], where: str) -> None:
    if not _HUB_ID.fullmatch(model) and not model.startswith("/"):
        raise _wrong(data, "model", where, "a Hugging Face id (ORGANISATION/NAME) or a full path")
    _check_words("model", model, data, where)


def _whole(data: dict[str, Any], key: str, where: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise _wrong(data, key, where, f"a whole number of Sparks from 1 to {MOST_NODES}")
    return value


def _nodes(data: dict[str, Any], where: str) -> tuple[int, int | None]:
    """min_nodes and max_nodes, after the deprecated spellings mode, solo_only, cluster_only."""
    least, most = _whole(data, "min_nodes", where) or 1, _whole(data, "max_nodes", where)
    mode = data.get("mode", "auto")
    if mode not in ("auto", "solo", "cluster"):
        raise _wrong(data, "mode", where, "auto, solo or cluster")
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


def _runtime(
    data: dict[str, Any], command: str | None, defaults: dict[str, Any], where: str
) -> str:
    named = _text(data, "runtime", where)
    if named is None and command:
        named = next((runtime for hint, runtime in _HINTS if hint.match(command)), None)
    if named is not None and named not in RUNTIMES:
        raise RecipeError(
            "unknown runtime",
            where=place(where, data, "runtime"),
            found=repr(named),
            allowed=", ".join(RUNTIMES),
        )
    if named not in (None, "vllm"):
        return str(named)
    backend = str(defaults.get("distributed_executor_backend", "")).lower()
    ray = backend == "ray" or bool(command and _RAY_FLAG.search(command))
    return "vllm-ray" if ray else "vllm-distributed"


__all__ = ["ENGINES", "RUNTIMES", "Recipe", "load", "load_catalogue", "parse"]
