"""Recipes: the community's sparkrun recipe v2, with its surprises, plus our `lockstep:` block.

Unknown top-level keys are kept (`Recipe.extra`), as that format wants. The older v1 format of
eugr's scripts is refused, because it builds an image and patches it instead of naming one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lockstep.core.errors import RecipeError
from lockstep.core.yamlfile import parse_mapping, place, read_mapping
from lockstep.models import gguf
from lockstep.onhost.engines import ENGINES, Engine
from lockstep.recipes import recipe_fields
from lockstep.recipes.block import LockstepBlock
from lockstep.recipes.recipe_fields import ENGINE_OF_RUNTIME, RUNTIMES

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
        named = self.lockstep.engine
        return ENGINES[named] if named else ENGINE_OF_RUNTIME.get(self.runtime)

    @property
    def repository(self) -> str:
        """The model's repository on the hub, or its path: `model` without the quantisation."""
        return self.model if self.model.startswith("/") else self.model.partition(gguf.MARK)[0]

    @property
    def quant(self) -> str:
        """Which GGUF files of the repository are meant ("UD-IQ2_M"); "" for the whole of it."""
        return self.model[len(self.repository) + 1 :]

    @property
    def in_container(self) -> bool:
        """True: runs from an image. False: runs in a venv of the host."""
        return bool(self.container)

    @property
    def needs_roles_proxy(self) -> bool:
        """True: two messages of one role in a row are answered with HTTP 400 by the engine."""
        return self.lockstep.merges_roles is False

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
    try:
        state = path.stat()
    except (OSError, ValueError):
        return _load(path)
    # A run reads the catalogue more than once, and YAML is most of the time that takes.
    return _load_once(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=512)
def _load_once(path: Path, changed_ns: int, size: int) -> Recipe:
    return _load(path)


def _load(path: Path) -> Recipe:
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
    said = recipe_fields.read(data, where)
    if said.defaults.get("model", data.get("model")) != data.get("model"):
        raise RecipeError(
            "defaults.model differs from model, so what is fetched would not be what is served",
            where=place(where, data["defaults"], "model"),
            found=repr(said.defaults["model"])[:60],
            remedy="Remove defaults.model.",
        )
    if not said.model:
        raise RecipeError(
            "the recipe names no model",
            where=where,
            remedy="Add `model: ORGANISATION/NAME`, the id on the Hugging Face hub.",
        )
    least, most = recipe_fields.nodes(said, place(where, data, "max_nodes"))
    return Recipe(
        name=path.stem,
        path=path,
        model=said.model,
        revision=said.model_revision,
        runtime=recipe_fields.runtime(said),
        container=said.container,
        min_nodes=least,
        max_nodes=most,
        defaults=said.defaults,
        env={key: str(value) for key, value in said.env.items()},
        command=said.command.strip() or None,
        metadata=said.metadata,
        executor_config=said.executor_config,
        lockstep=said.lockstep,
        extra={key: value for key, value in data.items() if key not in KNOWN_KEYS},
        hooks={
            key: data[key]
            for key in ("pre_exec", "post_exec", "post_commands", "mods")
            if data.get(key)
        },
    )


__all__ = ["RUNTIMES", "Recipe", "load", "load_catalogue", "parse"]
