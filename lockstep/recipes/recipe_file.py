"""Recipes: the community's sparkrun recipe v2, with its surprises, plus our `lockstep:` block.

Top-level keys that Lockstep does not read are no faults, as that format wants. A key that is like a
known one gets a warning. The older v1 format of eugr's scripts is refused, because it builds an
image and patches it instead of naming one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.version import Version

from lockstep.checkpoints import gguf
from lockstep.core.errors import LockstepError, RecipeError, gather_faults, raise_all
from lockstep.core.yamlfile import parse_mapping, part, place, read_mapping
from lockstep.onhost.core import schema
from lockstep.onhost.core.request_kinds_and_refused_shapes import Shape, TemplateShape
from lockstep.onhost.core.schema import LINES, Rule, SchemaFault, between, one_of, pattern_rule
from lockstep.onhost.engines import ENGINES, Engine
from lockstep.recipes.block import LockstepBlock

# Nobody was seen to run more than eight Sparks together (2026-11); this only stops typing errors.
MOST_NODES = 64

_HINTS = (
    *(hint for engine in ENGINES.values() for hint in engine.hints),
    (re.compile(r"(?:trtllm-serve\b|mpirun\b.*trtllm)"), "trtllm"),
)
# The runtimes of sparkrun that drive an engine of ours.
_ENGINE_OF_RUNTIME = {name: engine for engine in ENGINES.values() for name in engine.runtimes}
# The runtime of a recipe that names none.
_USUAL = next(engine.runtimes[0] for engine in ENGINES.values() if engine.usual)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?(?::[\w.-]+)?", re.ASCII)
# Keys of hooks, of which Lockstep runs none.
_HOOKS = ("pre_exec", "post_exec", "post_commands", "mods")
_VERSIONS = ("recipe_version", "sparkrun_version")
# Keys that change other keys under a condition (sparkrun 0.4); they are not read.
_CONDITIONAL = ("overrides",)
#: Keys of `executor_config` for a container, as options of `docker run`.
CONTAINER_KEYS = ("gpus", "network", "ipc", "shm_size", "user", "entrypoint")
# Keys that have a meaning one step deeper → the mapping that they belong in.
_PLACES = {
    **dict.fromkeys((key for engine in ENGINES.values() for key in engine.flags), "defaults"),
    **dict.fromkeys(("host", "port"), "defaults"),
    **dict.fromkeys(CONTAINER_KEYS, "executor_config"),
}
# Other keys of that format (2026-11), without a meaning here.
_UNUSED = (
    *("name", "description", "runtime_version", "runtime_config", "runtime_cache", "benchmark"),
    *("distribution_config", "builder", "builder_config", "build_args", "stop_after_post"),
    *("containers", "executor", "scheduler", "layout", "cluster_config", "readiness", "include"),
    *("capabilities", "unsupported_capabilities", "overrides"),
)


def _is_word(text: str) -> bool:
    return not text.startswith("-") and not any(character.isspace() for character in text)


def _is_model(text: str) -> bool:
    is_known_form = _HUB_ID.fullmatch(text) is not None or text.startswith("/")
    return is_known_form and ".." not in text.split("/") and _is_word(text)


def _of_a_variable(value: Any) -> SchemaFault | None:
    # The value is not shown: it may be a secret.
    text = str(value)
    if isinstance(value, dict | list) or value is None or "\0" in text:
        kind = type(value).__name__
        return SchemaFault("must be one text or number", f"a {kind}", remedy="Quote the value.")
    return SchemaFault("spans lines", f"{len(text)} characters") if "\n" in text else None


_Model = Annotated[
    str, Rule("must be a Hugging Face id (ORGANISATION/NAME) or a full path", _is_model)
]
_Revision = Annotated[
    str, pattern_rule(r"[A-Za-z0-9][\w./-]*", "must be a branch, tag or commit", "")
]
_Word = Annotated[str, Rule("must be one word that does not start with '-'", _is_word)]
_Nodes = Annotated[int, between(1, MOST_NODES, "must be a whole number of Sparks", " Sparks")]
#: InvalidVersion is a ValueError.
_Release = Annotated[
    str,
    Rule("is not a version", lambda text: not text or Version(text), '"0.4.0", in quotes'),
]
_Name = Annotated[
    str, pattern_rule(r"[A-Za-z_]\w*", "is not a variable name", "letters, digits and '_'")
]


@dataclass(frozen=True)
class Recipe:
    """A setup of one model: its checkpoint, its engine and its flags.

    Attributes:
        name: The file's stem; how models in the inventory refer to it.
        path: The file it was read from.
        hooks: pre_exec, post_exec, post_commands and mods, kept unread: Lockstep runs none of them.
        misspelt: Unknown top-level keys → the known key that each is like, or the key with its
            mapping ("executor_config.entrypoint").
        conditional: Its keys that change others under a condition; Lockstep reads none of them.
        model: Hugging Face id, or a path; a GGUF file set is "repository:quant".
        model_revision: Commit, tag or branch of the model, or None where it is not pinned.
        runtime: sparkrun's runtime after resolution ("vllm-distributed", "sglang", …).
        container: Image reference; "" means that the engine lives in a venv.
        min_nodes: Least number of Sparks.
        max_nodes: Most Sparks, or None for no limit.
        min_sparkrun_version: The oldest sparkrun that can run it; "" where it names none.
        mode, solo_only, cluster_only: Deprecated spellings of min_nodes and max_nodes, which count
        already.
        defaults: Values for placeholders and flags.
        env: Environment of the engine, values as text; "$VAR" is not yet expanded.
        command: The command template; "" for one that is built from `defaults`.
        metadata: The format's facts about the model, unchecked.
        executor_config: Container settings of that format.
        lockstep: Our own block.
    """

    name: str
    path: Path
    hooks: tuple[str, ...]
    misspelt: Mapping[str, str]
    conditional: tuple[str, ...] = ()
    model: _Model = ""
    model_revision: _Revision | None = None
    runtime: Annotated[str, one_of((*_ENGINE_OF_RUNTIME, "trtllm", "atlas"))] = ""
    container: _Word = ""
    min_nodes: _Nodes = 1
    max_nodes: _Nodes | None = None
    min_sparkrun_version: _Release = ""
    mode: Literal["auto", "solo", "cluster"] = "auto"
    solo_only: Any = None
    cluster_only: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[_Name, Annotated[Any, _of_a_variable]] = field(default_factory=dict)
    command: Annotated[str, LINES] = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    executor_config: Mapping[str, Any] = field(default_factory=dict)
    lockstep: LockstepBlock = field(default_factory=LockstepBlock)

    @property
    def engine(self) -> Engine | None:
        """The engine whose flags the command holds; None for one that Lockstep does not run."""
        engine_name = self.lockstep.engine
        return ENGINES[engine_name] if engine_name else _ENGINE_OF_RUNTIME.get(self.runtime)

    @property
    def repository(self) -> str:
        """The model's repository on the hub, or its path: `model` without the quantisation."""
        return self.model if self.model.startswith("/") else self.model.partition(gguf.MARK)[0]

    @property
    def quant(self) -> str:
        """The quantisation of the repository's GGUF files ("UD-IQ2_M"); "" for the whole of it."""
        return self.model[len(self.repository) + 1 :]

    @property
    def in_container(self) -> bool:
        """True if it runs from an image, False if it runs in a venv of the host."""
        return bool(self.container)

    @property
    def refuses_roles(self) -> bool:
        """True if the recipe states that two messages of one role in a row are refused."""
        return "same_role" in (self.lockstep.refused_shapes or ())

    def evens(self, of_template: Sequence[TemplateShape] | None) -> tuple[Shape, ...]:
        """Return the shapes of a conversation that template or engine answer with HTTP 400.

        `of_template`: shapes that the template refuses, where the recipe does not say; None:
        unknown.
        """
        own_shapes = self.lockstep.refused_shapes
        engine = self.engine.refused_shapes if self.engine else ()
        return (*((of_template or ()) if own_shapes is None else own_shapes), *engine)

    def fault(self, summary: str, **more: str) -> RecipeError:
        """Return an error about this recipe; ``more`` are other arguments of `LockstepError`."""
        return RecipeError(summary, where=str(self.path), **more)

    @property
    def description(self) -> str:
        """The description in one line for lists, or ""."""
        return str(self.metadata.get("description") or "").strip()


def load(path: Path) -> Recipe:
    """Read one recipe file. RecipeError for every fault, with file, line, key and remedy."""
    path, stamp = Path(path), None
    with contextlib.suppress(OSError, ValueError):
        state = path.stat()
        stamp = (state.st_mtime_ns, state.st_size)
    return _load_once(path, stamp)


# A run reads the catalogue more than once, and most of that time is YAML.
@lru_cache(maxsize=512)
def _load_once(path: Path, stamp: tuple[int, int] | None) -> Recipe:
    return _recipe(read_mapping(path, RecipeError), path)


def parse(text: str, path: Path) -> Recipe:
    """Parse the text of a recipe file as `load` does; ``path`` gives name and error place."""
    return _recipe(parse_mapping(text, str(path), RecipeError), Path(path))


def load_catalogue(*directories: Path) -> dict[str, Recipe]:
    """Return every ``*.yaml`` of the folders by name; a later folder may not repeat a name.

    LockstepError with every missing folder, wrong recipe, and name of two files.
    """
    recipes: dict[str, Recipe] = {}
    faults: list[LockstepError] = []
    for directory in directories:
        if not Path(directory).is_dir():
            faults.append(RecipeError("the recipe folder does not exist", where=str(directory)))
        for path in sorted(Path(directory).glob("*.yaml")):
            with gather_faults(faults):
                recipe = load(path)
                if recipe.name in recipes:
                    raise RecipeError(
                        f"recipe {recipe.name!r} exists twice",
                        where=str(path),
                        found=f"also in {recipes[recipe.name].path}",
                        remedy="Rename one of the files.",
                    )
                recipes[recipe.name] = recipe
    raise_all(faults)
    return {name: with_related_facts(recipe, recipes.values()) for name, recipe in recipes.items()}


def with_related_facts(recipe: Recipe, related_recipes: Iterable[Recipe]) -> Recipe:
    """Return the recipe with facts from other recipes of the same checkpoint.

    Its licence and its experts are filled where it states nothing and the others agree.
    """
    alike = [
        candidate
        for candidate in related_recipes
        if candidate.model == recipe.model and candidate.name != recipe.name
    ]
    licences = {candidate.lockstep.licence for candidate in alike} - {None}
    if recipe.lockstep.licence is None and len(licences) == 1:
        recipe = replace(recipe, lockstep=replace(recipe.lockstep, licence=licences.pop()))
    stating = [candidate for candidate in alike if candidate.lockstep.moe is not None]
    if (
        recipe.lockstep.moe is not None
        or len({candidate.lockstep.moe for candidate in stating}) != 1
    ):
        return recipe
    storages = (str(candidate.metadata.get("quantization") or "") for candidate in stating)
    return with_experts(recipe, bool(stating[0].lockstep.moe), next(filter(None, storages), ""))


def with_experts(recipe: Recipe, moe: bool, storage: str) -> Recipe:
    """Return the recipe, which states nothing of experts, with its checkpoint's facts.

    `storage` is how the weights are quantised, "none" for not at all. The recipe's own statement of
    that wins.
    """
    is_stated = any(recipe.metadata.get(key) for key in ("quantization", "model_dtype"))
    more = {} if is_stated or not storage else {"quantization": storage}
    block = replace(recipe.lockstep, moe=moe)
    return replace(recipe, lockstep=block, metadata={**recipe.metadata, **more})


def _recipe(data: dict[str, Any], path: Path) -> Recipe:
    where = str(path)
    _refuse_v1(data, where)
    implied_fields: dict[str, Any] = {"name": path.stem, "path": path}
    implied_fields["hooks"] = tuple(key for key in _HOOKS if data.get(key))
    implied_fields["conditional"] = tuple(key for key in _CONDITIONAL if data.get(key))
    known_keys = {item.name for item in fields(Recipe)} - {*implied_fields, "misspelt"}
    implied_fields["misspelt"] = _misspelt(data, {*known_keys, *_HOOKS, *_VERSIONS})
    if not isinstance(data.get("env") or {}, dict):
        raise RecipeError(
            "env must be a mapping",
            where=place(where, data, "env"),
            found=f"a {type(data['env']).__name__}",
            remedy="Write `NAME: value` in each line.",
        )
    document = part(data, [key for key in known_keys if data.get(key) != ""])
    for key in ("min_nodes", "max_nodes"):
        text = document.get(key)
        if isinstance(text, str) and text.strip().isdecimal() and len(text) < 6:
            document[key] = int(text)
    recipe = schema.build(
        Recipe, document, where=where, error=RecipeError, implied_fields=implied_fields
    )
    if recipe.defaults.get("model", data.get("model")) != data.get("model"):
        raise RecipeError(
            "defaults.model differs from model, so what is fetched would not be what is served",
            where=place(where, data["defaults"], "model"),
            found=repr(recipe.defaults["model"])[:60],
            remedy="Remove defaults.model.",
        )
    if not recipe.model:
        raise RecipeError(
            "the recipe names no model",
            where=where,
            remedy="Add `model: ORGANISATION/NAME`, the id on the Hugging Face hub.",
        )
    least, most = _nodes(recipe, place(where, data, "max_nodes"))
    return replace(
        recipe,
        runtime=_runtime(recipe),
        min_nodes=least,
        max_nodes=most,
        env={key: str(value) for key, value in recipe.env.items()},
        command=recipe.command.strip(),
    )


def _misspelt(data: Mapping[str, Any], known_keys: Collection[str]) -> dict[str, str]:
    unknown = [key for key in data if key not in known_keys and key not in _UNUSED]
    near = {
        key: f"{_PLACES[key]}.{key}" if key in _PLACES else schema.nearest_name(key, known_keys)
        for key in unknown
    }
    return {key: near_key for key, near_key in near.items() if near_key}


def _refuse_v1(data: dict[str, Any], where: str) -> None:
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


def _nodes(recipe: Recipe, where: str) -> tuple[int, int | None]:
    """Return min_nodes and max_nodes, with the deprecated mode, solo_only and cluster_only."""
    least, most = recipe.min_nodes, recipe.max_nodes
    if recipe.mode == "solo" or recipe.solo_only:
        most = 1
        least = 1 if recipe.mode == "solo" else least
    if recipe.mode == "cluster" or recipe.cluster_only:
        least = max(least, 2)
    if most is not None and most < least:
        raise RecipeError(
            "min_nodes is larger than max_nodes", where=where, found=f"{least} and {most} Sparks"
        )
    return least, most


def _runtime(recipe: Recipe) -> str:
    """Return sparkrun's runtime: named, guessed from the command, or the usual one."""
    guesses = (name for hint, name in _HINTS if recipe.command and hint.match(recipe.command))
    runtime_name = recipe.runtime or next(guesses, _USUAL)
    engine = _ENGINE_OF_RUNTIME.get(runtime_name)
    return (
        engine.sparkrun_runtime(runtime_name, recipe.command, recipe.defaults)
        if engine
        else runtime_name
    )
